"""Makes the bucket of STORAGE_URL, which everyone may read, and a user who may write to it alone; repeatable.

The user is MinIO's: on another S3 server, which has no such address, it is made by that server's own means.
"""

import json
import os
import sys
from urllib.parse import parse_qs, quote, urlsplit

import boto3
import requests
from argon2.low_level import Type, hash_secret_raw
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# By the inner network: the proxy lets nobody pass to it.
ADMIN = "http://storage:9000/minio/admin/v3/"
OBJECTS = [
    "GetObject",
    "PutObject",
    "DeleteObject",
    "AbortMultipartUpload",
    "ListMultipartUploadParts",
]
WHOLE = ["ListBucket", "GetBucketLocation", "ListBucketMultipartUploads"]


def main() -> None:
    address = urlsplit(os.environ["STORAGE_URL"])
    bucket = address.netloc
    options = {name: last for name, (*_, last) in parse_qs(address.query).items()}
    root = Credentials(os.environ["MINIO_ROOT_USER"], os.environ["MINIO_ROOT_PASSWORD"])
    user, password = os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]
    if user == root.access_key:
        sys.exit("AWS_ACCESS_KEY_ID is MinIO's root user: give the service a key of its own.")
    client = boto3.client(
        "s3",
        endpoint_url=options.get("endpoint"),
        region_name=options.get("region"),
        aws_access_key_id=root.access_key,
        aws_secret_access_key=root.secret_key,
    )
    if bucket not in {each["Name"] for each in client.list_buckets()["Buckets"]}:
        client.create_bucket(Bucket=bucket)
    everyone = {"Principal": {"AWS": ["*"]}, **allowed(["GetObject"], f"{bucket}/*")}
    client.put_bucket_policy(Bucket=bucket, Policy=policy(everyone))
    writes = policy(allowed(OBJECTS, f"{bucket}/*"), allowed(WHOLE, bucket))
    if not admin(root, "add-canned-policy", writes.encode(), name=f"writes-{bucket}"):
        print("This is no MinIO: the user of AWS_ACCESS_KEY_ID is made by the server's own means.")
        return
    made = json.dumps({"status": "enabled", "secretKey": password}).encode()
    admin(root, "add-user", sealed(made, root.secret_key), accessKey=user)
    given = {"userOrGroup": user, "isGroup": "false", "policyName": f"writes-{bucket}"}
    admin(root, "set-user-or-group-policy", b"", **given)


def allowed(actions: list[str], on: str) -> dict[str, object]:
    return {
        "Effect": "Allow",
        "Action": [f"s3:{each}" for each in actions],
        "Resource": [f"arn:aws:s3:::{on}"],
    }


def policy(*statements: dict[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def admin(root: Credentials, act: str, body: bytes, **parameters: str) -> bool:
    """Returns whether the server knows this act of MinIO's; ends where it refuses it."""
    query = "&".join(
        f"{name}={quote(value, safe='')}" for name, value in sorted(parameters.items())
    )
    request = AWSRequest("PUT", f"{ADMIN}{act}?{query}", data=body)
    signer = SigV4Auth(root, "s3", "us-east-1")
    request.headers["X-Amz-Content-SHA256"] = signer.payload(request)
    signer.add_auth(request)
    answer = requests.put(request.url, data=body, headers=dict(request.headers.items()), timeout=30)
    if answer.status_code in {404, 405, 501}:
        return False
    if not answer.ok:
        sys.exit(f"MinIO refused {act}: {answer.status_code}.")
    return True


def sealed(payload: bytes, password: str) -> bytes:
    """As MinIO takes a secret: salt, cipher, nonce, and pieces of 16 KiB, of which this is the one and last."""
    salt, nonce = os.urandom(32), os.urandom(8)
    key = hash_secret_raw(
        password.encode(),
        salt,
        time_cost=1,
        memory_cost=65536,
        parallelism=4,
        hash_len=32,
        type=Type.ID,
    )
    aes = AESGCM(key)
    last = b"\x80" + aes.encrypt(nonce + bytes(4), b"", b"")
    return salt + b"\0" + nonce + aes.encrypt(nonce + (1).to_bytes(4, "little"), payload, last)


if __name__ == "__main__":
    main()
