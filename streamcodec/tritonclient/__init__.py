"""Tritonclient: the HTTP client of the package `tritonclient`, name by name, on our own client.

A program changes one line: `import streamcodec.tritonclient.http as httpclient`. Names, arguments, defaults, exceptions
and what the server receives are those of `tritonclient` 2.73. The code is our own, and needs neither `tritonclient` nor
its packages. `docs/howto/from-tritonclient.md` lists where the two differ.

- `utils`: datatypes, BYTES and BF16 as bytes, the exception; `utils.shared_memory`
- `http`: the blocking client, and what both clients share
- `http.aio`: the asynchronous client, on asyncio and trio
"""
