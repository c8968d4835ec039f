// The client in JavaScript: `fetch` and typed arrays, the same in Node (`node_client.mjs`) and in a page (`page.html`).
// `jobs.py` says what a job and its answer look like.

const HEADER_LENGTH = "Inference-Header-Content-Length";

// By datatype: the array that holds such a tensor, and one of integers that stand for its values: themselves, or a
// float's bits. There is no array for BF16, and not everywhere one for FP16.
const ARRAYS = {
    BOOL: [Uint8Array, Uint8Array],
    UINT8: [Uint8Array, Uint8Array],
    UINT16: [Uint16Array, Uint16Array],
    UINT32: [Uint32Array, Uint32Array],
    UINT64: [BigUint64Array, BigUint64Array],
    INT8: [Int8Array, Int8Array],
    INT16: [Int16Array, Int16Array],
    INT32: [Int32Array, Int32Array],
    INT64: [BigInt64Array, BigInt64Array],
    FP16: [globalThis.Float16Array ?? Uint16Array, Uint16Array],
    BF16: [Uint16Array, Uint16Array],
    FP32: [Float32Array, Uint32Array],
    FP64: [Float64Array, BigUint64Array],
};

const bytesOf = (array) => new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
const toInteger = (type) => (type.name.startsWith("Big") ? BigInt : Number);

export async function answer(job) {
    try {
        return await answerTo(job);
    } catch (error) {
        return { failure: `${error.name}: ${error.message}` };
    }
}

async function answerTo(job) {
    const response = await send(job);
    const body = new Uint8Array(await response.arrayBuffer());
    const length = response.headers.get(HEADER_LENGTH);
    const json = length === null ? body : body.subarray(0, Number(length));
    const document = json.length ? JSON.parse(new TextDecoder().decode(json)) : null;
    const outputs = {};
    const entries = job.method === "POST" && response.ok ? document.outputs : []; // metadata has `outputs`, too
    for (const [{ name, datatype, shape }, tensor] of read(entries, body.subarray(json.length))) {
        outputs[name] = { datatype, shape };
        if (job.digest) {
            outputs[name].sha256 = toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", pack(datatype, tensor))));
        } else {
            outputs[name].values = texts(datatype, tensor);
        }
    }
    return {
        status: response.status,
        fields: Object.fromEntries(response.headers),
        document,
        outputs,
        // A page may not see Content-Encoding.
        compressed: Number(response.headers.get("Content-Length") ?? body.length) < body.length,
    };
}

async function send(job) {
    if (job.method === "GET") {
        return fetch(job.url);
    }
    const [jsonBytes, chunks] = message(job);
    let payload = joined([jsonBytes, ...chunks], job.surplus);
    const headers = { "Content-Type": job.framing === "raw" ? "application/octet-stream" : "application/json" };
    if (job.framing !== "headerless") {
        headers[HEADER_LENGTH] = jsonBytes.length.toString();
    }
    if (job.encoding) {
        headers["Content-Encoding"] = job.encoding;
        const stream = new Blob([payload]).stream().pipeThrough(new CompressionStream(job.encoding));
        payload = new Uint8Array(await new Response(stream).arrayBuffer());
    }
    Object.assign(headers, job.fields);
    if (job.chunk_bytes) {
        return fetch(job.url, { method: "POST", headers, body: cut(payload, job.chunk_bytes), duplex: "half" });
    }
    // A browser leaves this field out, and sets it itself.
    headers["Content-Length"] = payload.length.toString();
    return fetch(job.url, { method: "POST", headers, body: payload });
}

function joined(chunks, surplus) {
    const payload = new Uint8Array(chunks.reduce((sum, chunk) => sum + chunk.byteLength, Math.max(surplus, 0)));
    let offset = 0;
    for (const chunk of chunks) {
        payload.set(chunk, offset);
        offset += chunk.byteLength;
    }
    return payload.subarray(0, payload.length + Math.min(surplus, 0));
}

function cut(payload, size) {
    let offset = 0;
    return new ReadableStream({
        pull(controller) {
            if (offset < payload.length) {
                controller.enqueue(payload.subarray(offset, offset + size));
                offset += size;
            } else {
                controller.close();
            }
        },
    });
}

// Returns the JSON, and the binary data tensor by tensor.
function message(job) {
    const chunks = [];
    const inputs = job.inputs.map(({ name, datatype, shape, values, count, json }) => {
        const tensor = make(datatype, values, count);
        if (json) {
            return { name, shape, datatype, data: asData(datatype, tensor) };
        }
        const chunk = pack(datatype, tensor);
        chunks.push(chunk);
        return { name, shape, datatype, parameters: { binary_data_size: chunk.byteLength } };
    });
    const json = job.framing === "raw" ? "" : JSON.stringify({ inputs, ...job.members });
    return [new TextEncoder().encode(json), chunks];
}

// Makes a tensor: a typed array, or for BYTES an array of Uint8Arrays.
function make(datatype, values, count) {
    if (datatype === "BYTES") {
        return values.map(fromHex);
    }
    const [type, bits] = ARRAYS[datatype];
    if (!count) {
        return new type(bits.from(values, toInteger(bits)).buffer);
    }
    const ramp = new type(count);
    for (let index = 0; index < count; index++) {
        ramp[index] = index;
    }
    return ramp;
}

// Returns the tensor as the member `data`.
function asData(datatype, tensor) {
    if (datatype === "BYTES") {
        return tensor.map((element) => new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(element));
    }
    return Array.from(tensor, datatype === "BOOL" ? Boolean : undefined);
}

// Returns the tensor of a member `data`.
function fromData(datatype, data) {
    if (datatype === "BYTES") {
        return data.map((text) => new TextEncoder().encode(text));
    }
    const [type] = ARRAYS[datatype];
    return type.from(data, toInteger(type));
}

function* read(outputs, tail) {
    let offset = 0;
    for (const output of outputs) {
        if (output.data) {
            yield [output, fromData(output.datatype, output.data)];
        } else {
            const size = output.parameters.binary_data_size;
            yield [output, unpack(output.datatype, tail.slice(offset, offset + size))];
            offset += size;
        }
    }
}

function pack(datatype, tensor) {
    if (datatype !== "BYTES") {
        return bytesOf(tensor);
    }
    const packed = new Uint8Array(tensor.reduce((sum, element) => sum + 4 + element.length, 0));
    let offset = 0;
    for (const element of tensor) {
        new DataView(packed.buffer).setUint32(offset, element.length, true);
        packed.set(element, offset + 4);
        offset += 4 + element.length;
    }
    return packed;
}

function unpack(datatype, bytes) {
    if (datatype !== "BYTES") {
        return new ARRAYS[datatype][0](bytes.buffer);
    }
    const tensor = [];
    for (let offset = 0; offset < bytes.length; ) {
        const start = offset + 4;
        offset = start + new DataView(bytes.buffer).getUint32(offset, true);
        tensor.push(bytes.subarray(start, offset));
    }
    return tensor;
}

function texts(datatype, tensor) {
    return datatype === "BYTES" ? tensor.map(toHex) : Array.from(new ARRAYS[datatype][1](tensor.buffer), String);
}
