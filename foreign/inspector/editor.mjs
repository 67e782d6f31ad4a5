// One question, open on two pages and in an editor on the official SDK: an answer in one of them removes it from the others.

import { Editor, choice, said } from "../agent_client/typescript/editor.mjs";
import { load as loadSdk } from "../agent_client/typescript/peer.mjs";
import { api, assert, check, openPage, options, quiet } from "./browser.mjs";

const sdk = await loadSdk(`${options.modules}/../agent_client/typescript`);

/** A question of a hosted agent after an editor's prompt: in the editor, in the inbox, and in the thread. */
async function askedEverywhere(browser, choose) {
  const editor = new Editor({ sdk, command: ["trilogue", "connect", "coder"], cwd: process.cwd(), isSeed: false });
  editor.choose = choose;
  await editor.initialize();
  const { sessionId } = await editor.newSession();
  const turn = editor.prompt(sessionId, "code");
  const asked = await editor.saw((each) => each.method === "session/request_permission", "the question");
  const [interrupt] = (await api(`interrupts?pending=true&thread_id=${sessionId}`)).items;
  const inbox = await openPage(browser, { path: "#/inbox" });
  const thread = await openPage(browser, { path: `#/threads/${sessionId}` });
  const cards = [inbox, thread].map((page) => page.locator(`.question[data-id="${interrupt.id}"]`));
  for (const card of cards) await card.getByText("Allow once").waitFor();
  return { editor, turn, asked, interrupt, cards, pages: [inbox, thread] };
}

/** Checks that the question has this answer everywhere, and is no longer open anywhere. */
async function isAnswered({ editor, turn, interrupt, cards, pages }, option, words) {
  for (const card of cards) await card.locator(`.resolution >> text=${option}`).waitFor();
  const { result, updates } = await turn;
  assert.equal(result.stopReason, "end_turn");
  assert.match(said(updates), words);
  const { resolution } = await api(`interrupts/${interrupt.id}`);
  assert.equal(resolution.kind, "answered");
  for (const page of pages) {
    await page.waitForFunction((id) => !document.querySelector(`.question[data-id="${id}"][data-open]`), interrupt.id);
    quiet(page);
  }
  await pages[1].waitForSelector(".thread[data-state=completed]");
  assert.equal(editor.asked.length, 1, "how often the editor was asked");
  await editor.close();
}

await check({
  async a_page_answers(browser) {
    // The person at the editor does not answer the question.
    const question = await askedEverywhere(browser, () => new Promise(() => {}));
    await question.cards[0].getByText("Allow once").click();
    await isAnswered(question, "Allow once", /^Done/);
    const { params } = await question.editor.saw((each) => each.method === "$/cancel_request", "the question taken back");
    assert.equal(params.requestId, question.asked.id);
  },

  async the_other_page_answers(browser) {
    const question = await askedEverywhere(browser, () => new Promise(() => {}));
    await question.cards[1].getByText("Reject").click();
    await isAnswered(question, "Reject", /^I left the file/);
  },

  async the_editor_answers(browser) {
    let answer;
    const question = await askedEverywhere(browser, (params) => new Promise((done) => (answer = () => done(choice(params, "reject_once")))));
    answer();
    await isAnswered(question, "Reject", /^I left the file/);
    assert.ok(!question.editor.messages.some((each) => each.method === "$/cancel_request"), "nothing is taken back");
  },
});
