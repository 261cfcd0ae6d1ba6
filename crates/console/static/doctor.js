// The signature doctor: why a webhook does not verify. Everything is computed in the browser; nothing
// is sent.
import { card, h, labelled, number, padded, replace } from "/console/dom.js";

const TOLERANCE_SECONDS = 300;

export function show(place) {
  const headers = h("textarea", {
    class: "code",
    rows: "6",
    spellcheck: "false",
    placeholder: "Restive-Signature: t=1795013240,v1=…\nwebhook-id: evt_…",
  });
  const body = h("textarea", {
    class: "code",
    rows: "8",
    spellcheck: "false",
    placeholder: '{"id":"evt_…"}',
  });
  const secret = h("input", { type: "password", autocomplete: "off", placeholder: "whsec_…" });
  const result = h("div", { role: "status" });
  const check = async (event) => {
    event.preventDefault();
    const findings = await diagnose(headers.value, body.value, secret.value);
    replace(
      result,
      findings.map((one) =>
        h(
          "div",
          { class: `callout ${one.ok ? "ok" : "bad"}` },
          h("h2", {}, one.title),
          h("p", {}, one.text),
        ),
      ),
    );
  };
  replace(
    place,
    h(
      "div",
      { class: "two" },
      card(
        "Paste the request that was refused",
        padded(
          h(
            "form",
            { onsubmit: check },
            labelled("Headers", headers, "One per line."),
            labelled("Body", body, "Exactly the bytes that arrived."),
            labelled("Secret", secret, "It stays in this page: the check runs in your browser."),
            h("button", { type: "submit", class: "primary" }, "Check the signature"),
          ),
        ),
      ),
      h(
        "div",
        { class: "stack" },
        result,
        card(
          "What is checked",
          padded(
            h(
              "p",
              { class: "muted" },
              "Restive-Signature and Stripe-Signature (t=…,v1=…), Standard Webhooks (webhook-id, webhook-timestamp, webhook-signature) and X-Hub-Signature-256. If a signature does not fit, the usual mistakes are tried: a secret with quotes or spaces, the wrong form of the secret, a body that was parsed and written again.",
            ),
          ),
        ),
      ),
    ),
  );
}

const bytes = (text) => new TextEncoder().encode(text);

function base64(text) {
  try {
    return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (letter) =>
      letter.charCodeAt(0),
    );
  } catch {
    return null;
  }
}

async function tag(key, text) {
  const made = await crypto.subtle.importKey(
    "raw",
    key.length ? key : new Uint8Array(1),
    { name: "HMAC", hash: "SHA-256" },
    false,
    ["sign"],
  );
  return new Uint8Array(await crypto.subtle.sign("HMAC", made, bytes(text)));
}

const hex = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");
const inBase64 = (data) => btoa(String.fromCharCode(...data));

/** What the headers claim: `{name, before, tags, seconds, standard, form}`. */
function claims(text) {
  const headers = new Map(
    text
      .split(/\r?\n/)
      .map((line) => line.split(/:(.*)/s))
      .filter((parts) => parts.length > 1)
      .map(([name, value]) => [name.trim().toLowerCase(), value.trim()]),
  );
  const found = [];
  for (const name of ["restive-signature", "stripe-signature"]) {
    const value = headers.get(name);
    if (!value) continue;
    const parts = value.split(",").map((part) => part.trim().split("="));
    const seconds = parts.find(([key]) => key === "t")?.[1];
    found.push({
      name,
      before: `${seconds}.`,
      seconds: Number(seconds),
      form: hex,
      tags: parts.filter(([key]) => key === "v1").map(([, tagged]) => tagged.toLowerCase()),
    });
  }
  for (const prefix of ["webhook", "svix"]) {
    const value = headers.get(`${prefix}-signature`);
    if (!value) continue;
    const [id, seconds] = [headers.get(`${prefix}-id`), headers.get(`${prefix}-timestamp`)];
    found.push({
      name: `${prefix}-signature`,
      before: `${id}.${seconds}.`,
      seconds: Number(seconds),
      standard: true,
      form: inBase64,
      missing: !id || !seconds,
      tags: value
        .split(" ")
        .map((part) => part.split(","))
        .filter(([key]) => key === "v1")
        .map(([, tagged]) => tagged),
    });
  }
  const plain = headers.get("x-hub-signature-256");
  if (plain)
    found.push({
      name: "x-hub-signature-256",
      before: "",
      form: hex,
      tags: [plain.replace(/^sha256=/, "").toLowerCase()],
    });
  return found;
}

const keyOf = (claim, secret) =>
  claim.standard ? (base64(secret.replace(/^whsec_/, "")) ?? bytes(secret)) : bytes(secret);

async function fits(claim, key, body) {
  return claim.tags.includes(claim.form(await tag(key, claim.before + body)));
}

/** What is wrong with each signature, or that nothing is. */
export async function diagnose(headerText, body, secret, now = Date.now() / 1000) {
  if (!secret)
    return [{ title: "The secret is missing", text: "Paste the whsec_… secret of the endpoint." }];
  if (!crypto.subtle)
    return [
      {
        title: "The browser cannot compute signatures here",
        text: "Open the console over https or on localhost.",
      },
    ];
  const found = claims(headerText);
  if (!found.length)
    return [
      {
        title: "No signature header",
        text: "None of Restive-Signature, Stripe-Signature, webhook-signature and X-Hub-Signature-256 is there. A proxy or framework may have removed it.",
      },
    ];
  return Promise.all(
    found.map(async (claim) => {
      const say = (ok, text) => ({
        ok,
        title: `${claim.name}: ${ok ? "valid" : "not valid"}`,
        text,
      });
      if (claim.missing)
        return say(false, "The headers for the id or the time are missing beside the signature.");
      if (!claim.tags.length) return say(false, "The header has no v1 signature.");
      if (await fits(claim, keyOf(claim, secret), body)) {
        const age = Math.round(now - claim.seconds);
        if (Number.isFinite(age) && Math.abs(age) > TOLERANCE_SECONDS) {
          return say(
            true,
            age > 0
              ? `The signature fits, but it is ${number(age)} seconds old. Receivers refuse more than ${TOLERANCE_SECONDS}: an old request was sent again, or the receiver's clock is ahead.`
              : `The signature fits, but its time is ${number(-age)} seconds in the future: one of the clocks is wrong.`,
          );
        }
        return say(true, "The secret and the body fit the signature.");
      }
      return say(false, await mistake(claim, secret, body));
    }),
  );
}

async function mistake(claim, secret, body) {
  const clean = secret.trim().replace(/^["'`]|["'`]$/g, "");
  const behind = clean.replace(/^whsec_/, "");
  const secrets = [
    [keyOf(claim, clean), "The secret has quotes or white space around it. Remove them."],
    [keyOf(claim, `whsec_${behind}`), "The secret lacks its beginning, whsec_."],
    [
      bytes(clean),
      "The sender uses the text of the secret as the key, the receiver its decoded bytes. Do not decode it for this header.",
    ],
    [
      base64(behind),
      "The sender uses the decoded bytes of the secret as the key. Decode the part behind whsec_ from base64.",
    ],
    [bytes(behind), "The sender uses the text behind whsec_ as the key."],
  ];
  for (const [key, text] of secrets) if (key && (await fits(claim, key, body))) return text;
  const key = keyOf(claim, clean);
  const bodies = [
    [body.replace(/[\r\n]+$/, ""), "A line end was added at the end of the body."],
    [`${body}\n`, "The line end at the end of the body was removed."],
    [body.replaceAll("\n", "\r\n"), "CR LF became LF in the body."],
    [body.trim(), "White space was added around the body."],
  ];
  try {
    const value = JSON.parse(body);
    bodies.push(
      [
        JSON.stringify(value),
        "The body was parsed and written again. Verify the raw bytes, before a JSON parser.",
      ],
      [
        JSON.stringify(value, null, 2),
        "The body was parsed and written again. Verify the raw bytes, before a JSON parser.",
      ],
    );
  } catch {
    // No JSON: there are no other forms to try.
  }
  for (const [other, text] of bodies)
    if (other !== body && (await fits(claim, key, other))) return text;
  return "Another secret or another body: nothing that was tried fits. Is it the secret of this endpoint and this mode? Were the bytes changed?";
}
