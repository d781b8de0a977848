// Talks to the service: JSON in, JSON or text out, and one class for everything that it refuses.

const ANSWER_MS = 8000;
const CHANGE_MS = 60000; // a chain may have to be compiled first

export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `the service answered ${status}`);
    this.status = status;
    this.errors = body.errors ?? []; // [{field, reason, allowed}]
  }
}

export async function problemOf(answer) {
  return new Problem(answer.status, await answer.json().catch(() => ({})));
}

async function ask(path, options, limit) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(limit), ...options });
  if (!answer.ok) throw await problemOf(answer);
  return answer;
}

export const read = async (path) => (await ask(path, {}, ANSWER_MS)).json();
export const readText = async (path) => (await ask(path, {}, ANSWER_MS)).text();

export async function change(method, path, body) {
  const headers = { "Content-Type": "application/json" };
  return (await ask(path, { method, headers, body: JSON.stringify(body) }, CHANGE_MS)).json();
}

export const cameraPath = (name) => `/api/v1/cameras/${encodeURIComponent(name)}`;
