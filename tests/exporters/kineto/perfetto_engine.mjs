// Answers queries with the engine of the Perfetto UI, its WebAssembly build.
//
//     node perfetto_engine.mjs FOLDER_OF_THE_UI < messages > replies
//
// stdin and stdout are streams of TraceProcessorRpcStream, as in Perfetto's
// trace_processor.proto. The bundle is a web worker: it gets the few names of a
// worker's world that it uses.
import fs from "node:fs";
import vm from "node:vm";

const folder = process.argv[2];

class FileRequest {
  open(_method, url) {
    this.path = `${folder}/${url.split("/").pop()}`;
  }
  send() {
    this.response = fs.readFileSync(this.path);
  }
}

const port = { postMessage: (reply) => fs.writeSync(1, reply) };
globalThis.self = { location: { href: "http://localhost/" } };
globalThis.WorkerGlobalScope = class {};
globalThis.XMLHttpRequest = FileRequest;
globalThis.process = undefined; // or the bundle takes this for no worker
console.log = console.warn = () => {};
vm.runInThisContext(fs.readFileSync(`${folder}/engine_bundle.js`, "utf8"));
self.onmessage({ data: port });
// The engine sets itself up in callbacks that are due already.
setTimeout(() => port.onmessage({ data: new Uint8Array(fs.readFileSync(0)) }), 0);
