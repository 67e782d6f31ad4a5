// @ts-check

import { subagentWords } from "../log/conversation.js";

const MOST = 160;

/** Returns one line about an event. @param {any} event @returns {string} */
export function summaryOf(event) {
  const text = words(event);
  return text.length > MOST ? `${text.slice(0, MOST)}…` : text;
}

/** @param {any} event @returns {string} */
function words(event) {
  switch (event.type) {
    case "run.created": return event.agent;
    case "run.ended": return [event.outcome?.status, event.outcome?.error?.message].filter(Boolean).join(": ");
    case "run.result": return JSON.stringify(event.value) ?? "";
    case "message.started": return event.role;
    case "message.delta":
    case "message.thought": return JSON.stringify(event.text.slice(0, MOST));
    case "message.part": return partWords(event.part);
    case "tool.started": return `${event.tool}: ${event.title}`;
    case "tool.updated": return `${event.call_id}: ${event.content?.length ?? 0} parts`;
    case "tool.ended": return `${event.call_id}: ${event.status}`;
    case "interrupt.raised": return `${event.interrupt?.kind} ${event.interrupt?.prompt?.[0]?.content ?? ""}`;
    case "interrupt.resolved": return [event.resolution?.kind, event.resolution?.answer?.option, event.resolution?.by].filter(Boolean).join(" ");
    case "interrupt.rule_applied": return event.rule;
    case "state.plan": return `${event.entries.filter((/** @type {any} */ it) => it.status === "completed").length} of ${event.entries.length} done`;
    case "state.plan_updated": return event.plan_id;
    case "state.plan_removed": return event.plan_id;
    case "state.subagent": return subagentWords(event);
    case "state.output": return JSON.stringify(event.output) ?? "";
    case "state.custom": return event.kind;
    case "thread.head_moved": return event.by;
    case "thread.run_removed": return event.reason;
    case "opaque": return String(event.original?.value?.update?.sessionUpdate ?? event.original?.dialect ?? "");
    default: return "";
  }
}

/** @param {any} part @returns {string} */
function partWords(part) {
  if (part?.metadata?.kind === "citation") return `citation: ${part.metadata.title ?? part.metadata.url ?? ""}`;
  if (part?.metadata?.kind === "trajectory") return `step: ${part.metadata.tool_name ?? part.metadata.message ?? ""}`;
  const isText = /^text\//.test(part?.content_type ?? "") && part.content_encoding !== "base64";
  return [part?.name, part?.content_type, isText ? JSON.stringify((part.content ?? "").slice(0, MOST)) : part?.content_url].filter(Boolean).join(" ");
}
