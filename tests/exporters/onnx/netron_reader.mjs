// Prints what Netron shows of a model file, read by Netron's own code.
//
//     node netron_reader.mjs FOLDER_OF_NETRON MODEL
//
// stdout is JSON: the format, the metadata of the model, and those of each node.
// Netron's reader runs in a host, a browser's window or Electron; this one has files only.
import fs from "node:fs/promises";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, file] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(path.join(folder, `${name}.js`)));
const [base, view] = await Promise.all([load("base"), load("view")]);

class Host {
  environment() {}
  event() {}
  exception(error) {
    throw error;
  }
  require(name) {
    return load(name);
  }
  async request(name, encoding, from) {
    const data = await fs.readFile(path.join(from ?? folder, name), encoding);
    return encoding ? data : new base.BinaryStream(data);
  }
}

class Context {
  constructor(host, stream) {
    this.host = host;
    this.stream = stream;
    this.identifier = path.basename(file);
    this.entries = new Map();
  }
  require(name) {
    return this.host.require(name);
  }
  request(name, encoding, from) {
    return this.host.request(name, encoding, from === undefined ? path.dirname(file) : from);
  }
  error(error) {
    throw error;
  }
}

const plain = (list) => Object.fromEntries(list.map(({ name, value }) => [name, value]));
const host = new Host();
const stream = new base.BinaryStream(await fs.readFile(file));
const factories = new view.ModelFactoryService(host);
const model = await factories.open(new Context(host, stream));
const [graph] = model.modules;
const nodes = graph.nodes.map((node) => ({
  name: node.name,
  type: node.type.name,
  outputs: node.outputs.flatMap((output) => output.value.map((value) => value.name)),
  metadata: plain(node.metadata),
}));
console.log(JSON.stringify({ format: model.format, metadata: plain(model.metadata), nodes }));
