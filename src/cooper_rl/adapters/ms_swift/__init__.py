"""cooper_plugin: the plugin for ms-swift, alone in its folder.

ms-swift puts the folder first on `sys.path`, where a neighbour called `trl.py` would hide TRL.
"""
