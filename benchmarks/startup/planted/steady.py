"""A fixed amount of work, whoever watches: real imports, computing, files read, lines printed."""

import argparse
import asyncio
import concurrent.futures
import ctypes
import decimal
import email.message
import hashlib
import http.server
import json
import logging.handlers
import multiprocessing.pool
import sqlite3
import sys
import time
import unittest.mock
import urllib.request
import xml.dom.minidom

ROUNDS = 100
STEPS = 240_000

source = sys.modules["json"].__file__
for number in range(ROUNDS):
    total = 0
    for step in range(STEPS):
        total += step * number % 7
    with open(source, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()
    print(
        f"INFO 11-29 12:00:00 [loader.py:{number}] loaded shard {number} {digest[:8]}", flush=True
    )
json.dumps({"total": total})
print("ready", flush=True)
time.sleep(3600)
