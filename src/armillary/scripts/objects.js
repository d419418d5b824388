// The object model of server-side scripts: getContext(), __, request and response. It is compiled on first use, or ahead
// of time while the cell is idle; so is `library.js`, which has the operations on the collection. Operations are queued
// and their results passed to callbacks; the server validates every operation again (`calls.py`).
(function (NativeError, errorsSource, librarySource) {
  "use strict";
  const { parse, stringify } = JSON, now = Date.now, evaluate = eval;
  const queue = [], waiting = new Map(), logged = [];
  let given = {}, nextNumber = 0, deadline = 0, unitsLeft = 0, unitsReserved = 0, failure, library;
  let requestBody, isRequestBodySet = false, responseBody, isResponseBodySet = false;
  const put = (name, value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });

  const numbered = evaluate(errorsSource)(NativeError);

  function fail(thrown) {
    if (failure !== undefined) return;
    const isObject = thrown !== null && typeof thrown === "object";
    let message = "(a value that cannot be converted to text)", stack = "", number;
    try { if (isObject && typeof thrown.number === "number") number = thrown.number; } catch (_) { }
    try { if (isObject && typeof thrown.stack === "string") stack = thrown.stack; } catch (_) { }
    try { message = String(isObject && !(thrown instanceof NativeError) ? stringify(thrown) : thrown); } catch (_) { }
    failure = { message, stack, number };
  }

  const accepts = () => nextNumber < given.operationsMax && now() < deadline && unitsReserved < unitsLeft;

  // `units`: the minimum charge, reserved until the actual charge is known.
  function enqueue(operation, units, callback) {
    if (!accepts()) return false;
    operation.number = nextNumber++;
    const text = stringify(operation);
    if (text.length > given.batchCharactersMax) throw new numbered(413, "The document is too large.");
    unitsReserved += units;
    queue.push(text);
    waiting.set(operation.number, [callback, units]);
    return true;
  }

  const copied = (value) => (value === undefined ? undefined : parse(stringify(value)));

  const request = {
    getBody: () => copied(requestBody),
    setBody(body) {
      if (!given.mayChangeRequest) throw new numbered(403, "The body of the request can be set by pre-triggers only.");
      body = copied(body);
      if (typeof body === "string") body = parse(body);
      if (body === null || typeof body !== "object" || Array.isArray(body)) throw new numbered(400, "The body of a request must be an object.");
      requestBody = body;
      isRequestBodySet = true;
    },
    getOperationType: () => given.operationType,
    getValue: (name) => inside().readValue(request, name),
    setValue: (name, value) => inside().writeValue(request, name, value),
  };

  const response = {
    getBody: () => copied(responseBody),
    setBody(body) {
      const text = body !== null && typeof body === "object" ? stringify(body) : body;
      if (typeof text === "string" && text.length > given.responseCharactersMax)
        throw new numbered(413, "The body of the response would be too large. Return a part of it, and let the client call again for the rest.");
      responseBody = body;
      isResponseBodySet = true;
    },
    appendBody: (value) => response.setBody(inside().joined(responseBody, value)),
    getValue: (name) => inside().readValue(response, name),
    setValue: (name, value) => inside().writeValue(response, name, value),
    appendValue: (name, value) => inside().appendValue(response, name, value),
    getResourceQuotaCurrentUsage: () => inside().quota("usage"),
    getMaxResourceQuota: () => inside().quota("quota"),
  };

  const collection = { getSelfLink: () => given.selfLink, getAltLink: () => given.altLink };
  const inside = () => library || (library = evaluate(librarySource)({
    parse, stringify, NativeError, numbered, enqueue, accepts, collection, response, logged, given: () => given,
  }));
  for (const name of [
    "createDocument", "upsertDocument", "readDocument", "replaceDocument", "deleteDocument", "queryDocuments", "readDocuments",
    "filter", "map", "pluck", "flatten", "unwind", "sortBy", "sortByDescending", "chain",
    "createAttachment", "readAttachment", "readAttachments", "replaceAttachment", "deleteAttachment", "queryAttachments", "upsertAttachment",
  ]) collection[name] = (...values) => inside()[name](...values);
  Object.defineProperty(collection, "spatial", { get: () => inside().spatial() });

  function abort(error) {
    // Queued operations are dropped. The failure is recorded first: catching the error does not undo it.
    if (error === undefined) error = new numbered("The script called abort.");
    fail(error);
    throw error;
  }

  const context = { getCollection: () => collection, getRequest: () => request, getResponse: () => response, abort };
  put("getContext", () => context);
  const shortcut = Object.assign(Object.create(collection), { request, response, abort, getContext: () => context });
  put("__", shortcut);
  const log = (...values) => inside().log(...values);
  put("console", { log, info: log, warn: log, error: log, debug: log });
  put("ErrorCodes", Object.freeze({
    BadRequest: 400, Forbidden: 403, NotFound: 404, Conflict: 409, PreconditionFailed: 412, RequestEntityTooLarge: 413,
    RetryWith: 449, InternalServerError: 500,
  }));

  function begin(told) {
    given = told;
    deadline = given.begunMs + given.acceptedForMs;
    unitsLeft = given.unitsMax;
    requestBody = given.requestBody;
    responseBody = given.responseBody;
    if (!given.hasResponse) { // a pre-trigger runs before there is a response
      delete context.getResponse;
      delete shortcut.response;
    }
  }

  function results(text) {
    const told = parse(text);
    unitsLeft = told.unitsLeft;
    for (const each of told.results) {
      if (failure !== undefined) return;
      const [callback, units] = waiting.get(each.number);
      waiting.delete(each.number);
      unitsReserved -= units;
      let error;
      if (each.error) {
        error = new NativeError(each.error.message);
        error.number = each.error.number;
        error.body = each.error.message;
      }
      try { callback(error, each); } catch (thrown) { fail(thrown); }
    }
  }

  // join() makes a flat string: long concatenations are ropes, which the engine does not hand to the cell.
  const told = (...texts) => texts.join("");

  // The next batch of queued operations.
  function taken() {
    let count = 0, characters = 0;
    while (count < queue.length && count < given.batchMax && (!count || characters + queue[count].length <= given.batchCharactersMax))
      characters += queue[count++].length;
    return queue.splice(0, count);
  }

  function drain() {
    // The batch may be empty: then the cell asks for the remaining results of earlier operations.
    if (failure === undefined && waiting.size) return told("O[", taken().join(","), "]");
    const end = { logged };
    try {
      if (failure === undefined && isRequestBodySet) end.requestBody = requestBody;
      if (failure === undefined && isResponseBodySet) end.responseBody = responseBody;
      end.failure = failure;
      return told("E", stringify(end));
    } catch (thrown) {
      fail(thrown);
      return told("E", stringify({ logged, failure }));
    }
  }

  return { begin, results, drain, fail, warm: inside };
})
