// The client in Node: a program, for `programs.py` to run.

import { createInterface } from "node:readline";

import { answer } from "./fetch_client.mjs";

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

say({ versions: `Node ${process.versions.node}, undici ${process.versions.undici}` });
for await (const line of createInterface({ input: process.stdin })) {
    say(await answer(JSON.parse(line)));
}
