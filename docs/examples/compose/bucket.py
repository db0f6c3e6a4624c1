"""Makes the bucket of STORAGE_URL, which everyone may read; repeatable."""

import json
import os
from urllib.parse import parse_qs, urlsplit

import boto3

address = urlsplit(os.environ["STORAGE_URL"])
bucket, options = (
    address.netloc,
    {name: last for name, (*_, last) in parse_qs(address.query).items()},
)
client = boto3.client("s3", endpoint_url=options.get("endpoint"), region_name=options.get("region"))
if bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
    client.create_bucket(Bucket=bucket)
readable = {
    "Effect": "Allow",
    "Principal": {"AWS": ["*"]},
    "Action": ["s3:GetObject"],
    "Resource": [f"arn:aws:s3:::{bucket}/*"],
}
policy = {"Version": "2012-10-17", "Statement": [readable]}
client.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
