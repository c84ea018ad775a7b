"""Object storage: one contract, a local folder and S3.

base     the contract                     open     the store of a URI
local    a folder                         s3       MinIO and other S3 servers
transfer multipart requests               buckets  buckets, users and rights on MinIO
models   models from a store              remote_data  problems from URLs and stores
model_reference  a model by its address, from one task to the next
probe    whether a store can be written, safely
"""
