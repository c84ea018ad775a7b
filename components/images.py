"""The two images that components run in, tagged with this version of the package.

`cooper-rl` is installed in both, so a component never installs anything when it runs. A registry is put in
front when the images are pushed. `images/` builds them.
"""

from importlib.metadata import version

TAG = version("cooper-rl")
CPU_IMAGE = f"cooper-rl-cpu:{TAG}"
GPU_IMAGE = f"cooper-rl-gpu:{TAG}"
