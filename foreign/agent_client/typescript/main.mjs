// Drives an agent with a client on the official SDK:
//   main.mjs --modules FOLDER --cwd FOLDER [--seed] [--trilogue] [--plain] [--native] [--name NAME] [--prompt TEXT] [--only TEXT] SUITE… -- COMMAND…
// `--seed` uses the SDK's release that had ids on prompts, `--trilogue` requires everything that Trilogue promises,
// The command can be an agent's address: `ws://…` or `http://…`, with the token in `TRILOGUE_TOKEN`.
// `--plain` skips words that only our example agents know, `--native` requires features of agents that are not hosted.

import { runSuites } from "../../shared/check.cjs";
import { auth, asking, attach } from "./more.mjs";
import { load } from "./peer.mjs";
import { suite as script } from "./script.mjs";
import { suite as session } from "./session.mjs";

const suites = new Map(Object.entries({ session, script, auth, asking, attach }));
const words = process.argv.slice(2, process.argv.indexOf("--"));
const command = process.argv.slice(process.argv.indexOf("--") + 1);
const options = new Map();
const names = [];
while (words.length > 0) {
  const word = words.shift();
  if (!word.startsWith("--")) names.push(word);
  else options.set(word, ["--seed", "--trilogue", "--plain", "--native"].includes(word) ? true : words.shift());
}

const isSeed = options.has("--seed");
const isTrilogue = options.has("--trilogue");
const target = {
  sdk: await load(options.get("--modules"), isSeed),
  command,
  modules: options.get("--modules"),
  cwd: options.get("--cwd"),
  name: options.get("--name"),
  prompt: options.get("--prompt") ?? "hello",
  isSeed,
  isTrilogue,
  hasIds: isTrilogue || options.get("--name") === "official-seed",
  isNative: options.has("--native"),
  hasVocabulary: !options.has("--plain"),
};

process.exit(await runSuites(suites, names, target, options.get("--only")));
