// What the OpenAPI document says about the service: collections, their fields, filters, actions and
// references. The console knows nothing about a service in advance.
import { get } from "/console/api.js";

/** Collections of the server itself, which have screens of their own. */
const BUILT_IN = new Set([
  "events",
  "webhook-endpoints",
  "deliveries",
  "attempts",
  "replays",
  "erasures",
  "keys",
  "accounts",
  "requests",
  "stats",
  "channel-tokens",
  "presence",
  "account",
  "version-usage",
  "live",
  "service",
]);

let loaded = null;

/** The document and what was read from it; read once. */
export function service(signal) {
  loaded ??= get("/openapi.json", { signal, cache: "default" })
    .then(read)
    .catch((error) => {
      loaded = null;
      throw error;
    });
  return loaded;
}

export function resolve(document, value) {
  let found = value;
  for (let steps = 0; found?.$ref && steps < 10; steps += 1) {
    const { $ref, ...beside } = found;
    const target = $ref
      .replace(/^#\//, "")
      .split("/")
      .reduce((place, name) => place?.[name.replaceAll("~1", "/").replaceAll("~0", "~")], document);
    found = target ? { ...target, ...beside } : beside;
  }
  return found ?? {};
}

function read(document) {
  const paths = Object.entries(document.paths ?? {});
  const account = paths.find(([path]) => path.endsWith("/account"));
  const mount = account ? account[0].slice(0, -"/account".length) : "/v1";
  const by = (id, usual) => paths.find(([, item]) => item.get?.operationId === id)?.[0] ?? usual;
  const collections = [];
  for (const [path, item] of paths) {
    if (!path.startsWith(`${mount}/`) || path.endsWith("}")) continue;
    const segments = path.slice(mount.length + 1).split("/");
    const name = segments.at(-1);
    const one = document.paths[`${path}/${paramOf(paths, path)}`];
    if (!one || !(item.get || item.post)) continue;
    collections.push(collection(document, { paths, path, segments, name, item, one }));
  }
  const operations = paths.flatMap(([path, item]) =>
    ["get", "post", "put", "patch", "delete"]
      .filter((method) => item[method])
      .map((method) => {
        const operation = item[method];
        const parameters = [...(item.parameters ?? []), ...(operation.parameters ?? [])].map(
          (one) => resolve(document, one),
        );
        return {
          id: operation.operationId,
          method: method.toUpperCase(),
          path,
          operation,
          parameters,
          tag: operation.tags?.[0] ?? "other",
        };
      }),
  );
  const own = collections.filter((one) => !BUILT_IN.has(one.name));
  const ofObject = new Map(collections.map((one) => [one.object, one]));
  return {
    document,
    mount,
    collections: own,
    all: collections,
    operations,
    ofObject,
    title: document.info?.title ?? "restive",
    version: document.info?.version,
    stream: by("stream", "/api/events"),
    socket: by("socket", "/ws"),
    feeds: paths
      .filter(([, item]) => item.get?.operationId?.startsWith("poll"))
      .map(([path]) => path),
    eventTypes: eventTypes(document),
    versions: versionsOf(document),
    find: (name) =>
      own.find((one) => one.name === name) ?? collections.find((one) => one.name === name),
    /** The page of a record by its id, found by the prefix or the object. */
    record: (object, id) => recordLink(ofObject.get(object), id),
  };
}

function paramOf(paths, path) {
  const below = paths.find(
    ([other]) => other.startsWith(`${path}/{`) && other.indexOf("/", path.length + 1) === -1,
  );
  return below ? below[0].slice(path.length + 1) : "{}";
}

function eventTypes(document) {
  const created = resolve(
    document,
    bodySchema(
      document,
      document.paths?.[
        Object.keys(document.paths).find((path) => path.endsWith("/webhook-endpoints"))
      ]?.post,
    ),
  );
  const items = resolve(document, resolve(document, created.properties?.enabled_events).items);
  return items.enum ?? ["*"];
}

function versionsOf(document) {
  const header = document.components?.parameters?.RestiveVersion;
  const schema = resolve(document, header?.schema);
  return schema.enum ?? [document.info?.version].filter(Boolean);
}

export function bodySchema(document, operation) {
  const content = resolve(document, operation?.requestBody)?.content ?? {};
  const kind = content["application/json"] ?? content["application/merge-patch+json"];
  return resolve(document, kind?.schema);
}

function answerSchema(document, operation, status) {
  const response = resolve(document, operation?.responses?.[status]);
  return resolve(document, response?.content?.["application/json"]?.schema);
}

function collection(document, { paths, path, segments, name, item, one }) {
  const parameters = (item.get?.parameters ?? []).map((parameter) => resolve(document, parameter));
  const record = answerSchema(document, one.get ?? item.post, one.get ? "200" : "201");
  const object = resolve(document, record.properties?.object).const ?? name;
  const fields = Object.entries(record.properties ?? {}).map(([field, schema]) =>
    fieldOf(document, field, schema),
  );
  const sent = bodySchema(document, item.post).properties;
  // What cannot be sent is assigned by the server, whether the document marks it or not.
  for (const field of fields) field.readOnly ||= Boolean(sent) && !(field.name in sent);
  const itemPath = paths.find(([, value]) => value === one)[0];
  const first = ["id", ...(bodySchema(document, item.post).required ?? [])];
  const last = ["object", "created_at", "updated_at"];
  const rank = (field) =>
    first.includes(field.name)
      ? first.indexOf(field.name) - 100
      : last.includes(field.name)
        ? 100 + last.indexOf(field.name)
        : 0;
  fields.sort((one, other) => rank(one) - rank(other));
  const actions = paths
    .filter(
      ([other, value]) =>
        other.startsWith(`${itemPath}/`) &&
        value.post &&
        !value.get &&
        !other.slice(itemPath.length + 1).includes("/"),
    )
    .map(([other, value]) => actionOf(document, other.slice(itemPath.length + 1), value.post));
  const children = paths
    .filter(
      ([other, value]) =>
        other.startsWith(`${itemPath}/`) &&
        value.get &&
        !other.slice(itemPath.length + 1).includes("/"),
    )
    .map(([other]) => other.slice(itemPath.length + 1));
  const sort = parameters.find((parameter) => parameter.name === "sort");
  return {
    name,
    path,
    itemPath,
    object,
    fields,
    actions,
    children,
    parents: segments.filter((segment) => !segment.startsWith("{")).slice(0, -1),
    description: record.description,
    create: item.post && { schema: bodySchema(document, item.post) },
    update: one.patch && { schema: bodySchema(document, one.patch) },
    canDelete: Boolean(one.delete),
    search: parameters.some((parameter) => parameter.name === "q"),
    sorts: (resolve(document, resolve(document, sort?.schema).items).enum ?? []).filter(
      (value) => !value.startsWith("-"),
    ),
    filters: parameters
      .filter(
        (parameter) =>
          parameter.in === "query" &&
          !["q", "sort", "page", "limit", "after", "include", "expand", "fields", "rank"].includes(
            parameter.name,
          ),
      )
      .map((parameter) => ({
        name: parameter.name,
        description: parameter.description,
        choices: choices(document, parameter.schema),
      })),
    state:
      fields.find(
        (field) => field.readOnly && field.choices && /state|action/i.test(field.description ?? ""),
      )?.name ?? fields.find((field) => field.name === "status" && field.choices)?.name,
  };
}

function choices(document, schema) {
  const found = resolve(document, schema);
  const values = found.enum ?? resolve(document, found.items).enum;
  return values?.filter((value) => value !== null);
}

function fieldOf(document, name, given) {
  const schema = resolve(document, given);
  const parts = (schema.anyOf ?? schema.oneOf ?? []).map((part) => resolve(document, part));
  const target = parts.find((part) => part.properties?.object);
  const described = /record in `([^`]+)`/.exec(schema.description ?? "")?.[1];
  const kinds = [schema.type, ...parts.map((part) => part.type)]
    .flat()
    .filter((kind) => kind && kind !== "null");
  const isList = Boolean(schema.properties?.data && schema.properties?.pagination);
  return {
    name,
    schema,
    isList,
    description: schema.description,
    kind: kinds[0] ?? "any",
    format: schema.format ?? parts.find((part) => part.format)?.format,
    readOnly: Boolean(schema.readOnly),
    choices: schema.enum?.filter((value) => value !== null),
    ref: described ?? (target ? resolve(document, target.properties.object).const : null),
  };
}

function actionOf(document, name, operation) {
  const text = operation.description ?? "";
  const possible = /Possible while it is ([^.]*)\./.exec(text)?.[1];
  const from = possible ? [...possible.matchAll(/`([^`]+)`/g)].map((found) => found[1]) : null;
  return { name, from, description: text, schema: bodySchema(document, operation) };
}

/** The address of a record's page, with the ids of its parents. */
export function recordLink(target, id, parents = []) {
  if (!target || (target.parents.length && parents.length < target.parents.length)) return null;
  const ids = target.parents.flatMap((parent, place) => [
    parent,
    encodeURIComponent(parents[place]),
  ]);
  return `#/records/${[...ids, target.name, encodeURIComponent(id)].join("/")}`;
}

/** The path of a collection or record in the API. */
export function apiPath(mount, names) {
  return `${mount}/${names.map(encodeURIComponent).join("/")}`;
}
