// Runs a program and the sender under MicroPython, and carries their bytes: that build has no sockets.
import net from "net";
import {readFileSync} from "fs";

const [folder, sender, host, port] = process.argv.slice(2);
const {loadMicroPython} = await import(`${folder}/@micropython/micropython-webassembly-pyscript/micropython.mjs`);

function isComplete(answer) {
  const end = answer.indexOf("\r\n\r\n");
  if (end < 0) return false;
  const lines = answer.subarray(0, end).toString("latin1").toLowerCase().split("\r\n");
  const length = lines.find((line) => line.startsWith("content-length: ")).split(": ")[1];
  return answer.length >= end + 4 + Number(length);
}

const sent = [];
const stdout = (line) => process.stdout.write(line + "\n");
const micropython = await loadMicroPython({stdout});
micropython.FS.writeFile("sender.py", readFileSync(sender, "utf8"));
micropython.FS.writeFile("program.py", readFileSync(0, "utf8"));
micropython.registerJsModule("wire", {write: (hex) => { sent.push(Buffer.from(hex, "hex")); }});
micropython.runPython("import program; program.sends()");

const answer = await new Promise((done, fail) => {
  let all = Buffer.alloc(0);
  const socket = net.connect(Number(port), host, () => sent.forEach((part) => socket.write(part)));
  socket.on("error", fail);
  socket.on("data", (part) => {
    all = Buffer.concat([all, part]);
    if (isComplete(all)) socket.end(() => done(all));
  });
});
micropython.FS.writeFile("answer", answer);
micropython.runPython("program.receives()");
