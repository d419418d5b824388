// The object model of server-side scripts, as they see it: getContext(), __ and console. It queues operations and hands
// results to callbacks; everything it asks for is checked again outside. It evaluates to the function that the cell
// drives: begin (the script is called), results (callbacks are called), drain (what is to be done next).
(function () {
  "use strict";
  const { parse, stringify } = JSON;
  const now = Date.now;
  const NativeError = Error;
  const queue = [];
  const waiting = new Map();
  const logged = [];
  let loggedCharacters = 0;
  let given = {};
  let nextNumber = 0;
  let deadline = 0;
  let failure;
  let requestBody, isRequestBodySet = false;
  let responseBody, isResponseBodySet = false;

  // The service's engine takes a number before the message.
  const numbered = new Proxy(NativeError, {
    construct(target, values, newTarget) {
      const hasNumber = typeof values[0] === "number" && values.length > 1;
      const made = Reflect.construct(target, hasNumber ? values.slice(1) : values, newTarget === numbered ? target : newTarget);
      if (hasNumber) made.number = values[0];
      return made;
    },
    apply(target, self, values) { return new numbered(...values); },
  });
  Object.defineProperty(NativeError.prototype, "constructor", { value: numbered, writable: true, configurable: true });
  globalThis.Error = numbered;

  function failedWith(told) {
    const error = new NativeError(told.message);
    error.number = told.number;
    error.body = told.message;
    return error;
  }

  function described(thrown) {
    const isObject = thrown !== null && typeof thrown === "object";
    let text, stack = "", number;
    try { number = isObject && typeof thrown.number === "number" ? thrown.number : undefined; } catch (_) { }
    try { stack = isObject && typeof thrown.stack === "string" ? thrown.stack : ""; } catch (_) { }
    try { text = isObject && !(thrown instanceof NativeError) ? stringify(thrown) : String(thrown); } catch (_) { text = "(something that has no text)"; }
    return { message: String(text), stack, number };
  }

  function fail(thrown) { if (failure === undefined) failure = described(thrown); }

  // Operations.

  function enqueue(operation, callback) {
    if (nextNumber >= given.operationsMax || now() >= deadline) return false;
    const number = nextNumber++;
    operation.number = number;
    queue.push(stringify(operation));
    waiting.set(number, callback);
    return true;
  }

  function optional(options, callback) {
    if (typeof options === "function" && callback === undefined) return [{}, options];
    if (options !== undefined && options !== null && typeof options !== "object") throw new NativeError("The options of an operation must be an object.");
    if (callback !== undefined && callback !== null && typeof callback !== "function") throw new NativeError("The callback of an operation must be a function.");
    return [options || {}, callback];
  }

  function text(value, name) {
    if (typeof value !== "string") throw new NativeError(`The ${name} must be a string.`);
    return value;
  }

  function documentOf(body) {
    if (typeof body === "string") body = parse(body);
    if (body === null || typeof body !== "object" || Array.isArray(body)) throw new NativeError("The document must be an object.");
    return body;
  }

  // Without a callback nobody could hear of an error, so it is the script's own.
  function answering(callback, pick) {
    return (error, told) => {
      if (error) {
        if (!callback) throw error;
        callback(error, undefined, {});
      } else if (callback) callback(...pick(told));
    };
  }

  const one = (told) => [undefined, told.body, told.options || {}];
  const none = (told) => [undefined, told.options || {}];

  const collection = {
    getSelfLink() { return given.selfLink; },
    getAltLink() { return given.altLink; },
    createDocument(link, body, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "create", link: text(link, "collection link"), body: documentOf(body), options }, answering(callback, one));
    },
    upsertDocument(link, body, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "upsert", link: text(link, "collection link"), body: documentOf(body), options }, answering(callback, one));
    },
    readDocument(link, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "read", link: text(link, "document link"), options }, answering(callback, one));
    },
    replaceDocument(link, body, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "replace", link: text(link, "document link"), body: documentOf(body), options }, answering(callback, one));
    },
    deleteDocument(link, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "delete", link: text(link, "document link"), options }, answering(callback, none));
    },
    queryDocuments(link, query, options, callback) {
      [options, callback] = optional(options, callback);
      if (typeof query === "string") query = { query };
      if (query === null || typeof query !== "object") throw new NativeError("The query must be a string, or an object with query and parameters.");
      return enqueue({ verb: "query", link: text(link, "collection link"), query, options }, answering(callback, one));
    },
    readDocuments(link, options, callback) {
      [options, callback] = optional(options, callback);
      return enqueue({ verb: "feed", link: text(link, "collection link"), options }, answering(callback, one));
    },
  };
  for (const name of ["createAttachment", "readAttachment", "readAttachments", "replaceAttachment", "deleteAttachment", "queryAttachments", "upsertAttachment"])
    collection[name] = () => { throw new NativeError(`${name} is not supported: there are no attachments.`); };

  // Queries that are JavaScript: __.filter and the like, alone or in a chain.

  function flat(rows, isShallow) {
    const made = [];
    for (const row of rows) {
      if (Array.isArray(row)) made.push(...(isShallow ? row : flat(row, false)));
      else made.push(row);
    }
    return made;
  }

  function sorted(rows, key, sign) {
    const keyed = rows.map((row, index) => [key(row), index, row]);
    keyed.sort((a, b) => (a[0] < b[0] ? -sign : a[0] > b[0] ? sign : a[1] - b[1]));
    return keyed.map((each) => each[2]);
  }

  function called(value, name) {
    if (typeof value !== "function") throw new NativeError(`${name} needs a function.`);
    return value;
  }

  const stages = {
    filter: (predicate) => { called(predicate, "filter"); return (rows) => rows.filter((row) => predicate(row)); },
    map: (change) => { called(change, "map"); return (rows) => rows.map((row) => change(row)); },
    pluck: (name) => { text(name, "name of a property to pluck"); return (rows) => rows.filter((row) => row !== null && row !== undefined && row[name] !== undefined).map((row) => row[name]); },
    flatten: (isShallow) => (rows) => flat(rows, Boolean(isShallow)),
    unwind: (inner, result) => {
      called(inner, "unwind");
      return (rows) => flat(rows.map((row) => (inner(row) || []).map((each) => ({ pair: result ? result(row, each) : [row, each] }))), true).map((each) => each.pair);
    },
    sortBy: (key) => { called(key, "sortBy"); const stage = (rows) => sorted(rows, key, 1); stage.needsAll = true; return stage; },
    sortByDescending: (key) => { called(key, "sortByDescending"); const stage = (rows) => sorted(rows, key, -1); stage.needsAll = true; return stage; },
  };

  function runStages(made, options, callback) {
    [options, callback] = optional(options, callback);
    const needsAll = made.some((stage) => stage.needsAll);
    let gathered = [];
    const finish = (rows, told) => {
      for (const stage of made) rows = stage(rows);
      if (callback) callback(undefined, rows, told);
      else response.setBody(rows);
    };
    const read = (each) => collection.readDocuments(given.selfLink, each, (error, rows, told) => {
      if (error) {
        if (!callback) throw error;
        callback(error, undefined, {});
      } else if (!needsAll) finish(rows, told);
      else {
        gathered = gathered.concat(rows);
        if (!told.continuation) finish(gathered, {});
        else if (!read({ ...each, continuation: told.continuation })) throw new numbered(408, "There is no time left to sort all documents.");
      }
    });
    return { isAccepted: read(options) };
  }

  function chainOf(made) {
    const link = {};
    for (const name of Object.keys(stages)) link[name] = (...values) => chainOf([...made, stages[name](...values)]);
    link.value = (options, callback) => runStages(made, options, callback);
    return link;
  }

  const COUNTS = { filter: 1, map: 1, pluck: 1, sortBy: 1, sortByDescending: 1 };
  const queries = { chain: () => chainOf([]) };
  for (const name of Object.keys(stages)) {
    queries[name] = (...values) => {
      // flatten and unwind take an optional value before options and callback.
      let count = COUNTS[name];
      if (name === "flatten") count = typeof values[0] === "boolean" ? 1 : 0;
      if (name === "unwind") count = typeof values[1] === "function" && values.length > 2 ? 2 : 1;
      return runStages([stages[name](...values.slice(0, count))], values[count], values[count + 1]);
    };
  }

  // Request and response.

  const copied = (value) => (value === undefined ? undefined : parse(stringify(value)));

  function onlyBody(key) {
    if (String(key).toLowerCase() !== "body") throw new NativeError(`The value '${String(key)}' is not supported; there is 'Body'.`);
  }

  const request = {
    getBody() { return copied(requestBody); },
    setBody(body) {
      if (!given.mayChangeRequest) throw new NativeError("The body of the request can be set by pre-triggers only.");
      requestBody = documentOf(copied(body));
      isRequestBodySet = true;
    },
    getValue(key) { onlyBody(key); return request.getBody(); },
    setValue(key, value) { onlyBody(key); request.setBody(value); },
    getOperationType() { return given.operationType; },
  };

  const appended = (value) => (typeof value === "string" ? value : value === undefined ? "" : stringify(value));

  const response = {
    getBody() { return given.mayReadResponse ? copied(responseBody) : refuseResponse(); },
    setBody(body) {
      if (!given.mayReadResponse) refuseResponse();
      responseBody = body;
      isResponseBodySet = true;
    },
    appendBody(value) { response.setBody(appended(responseBody) + appended(value)); },
    getValue(key) { onlyBody(key); return response.getBody(); },
    setValue(key, value) { onlyBody(key); response.setBody(value); },
    appendValue(key, value) { onlyBody(key); response.appendBody(value); },
  };

  function refuseResponse() { throw new NativeError("A pre-trigger has no response: it runs before the operation."); }

  function abort(error) {
    // What was queued and not yet done never is, and nobody can catch what has happened already.
    fail(error === undefined ? new NativeError("The script called abort.") : error);
    throw error === undefined ? new NativeError("The script called abort.") : error;
  }

  const context = {
    getCollection: () => collection,
    getRequest: () => request,
    getResponse: () => response,
    abort,
  };
  globalThis.getContext = () => context;
  globalThis.__ = { ...collection, ...queries, request, response, abort, getContext: () => context };

  // console

  function shown(value) {
    if (typeof value === "string") return value;
    if (value instanceof NativeError) return String(value);
    if (value !== null && typeof value === "object") { try { return stringify(value); } catch (_) { return "[object]"; } }
    return String(value);
  }

  function log(...values) {
    let rest = values;
    let line = "";
    if (typeof values[0] === "string") {
      rest = values.slice(1);
      line = values[0].replace(/%[sdifjoO%]/g, (form) => {
        if (form === "%%") return "%";
        if (!rest.length) return form;
        const value = rest.shift();
        if (form === "%d" || form === "%f") return String(Number(value));
        return form === "%i" ? String(Math.trunc(Number(value))) : shown(value);
      });
      line = [line, ...rest.map(shown)].join(" ");
    } else line = rest.map(shown).join(" ");
    if (loggedCharacters + line.length > given.logCharactersMax) return;
    loggedCharacters += line.length + 1;
    logged.push(line);
  }
  globalThis.console = { log, info: log, warn: log, error: log, debug: log };

  // What the cell drives.

  function begin(text, script) {
    given = parse(text);
    deadline = now() + given.acceptedForMs;
    requestBody = given.requestBody;
    responseBody = given.responseBody;
    try {
      const made = script(...given.arguments);
      if (made !== null && typeof made === "object" && typeof made.then === "function") made.then(undefined, fail);
    } catch (thrown) { fail(thrown); }
  }

  function results(text) {
    for (const told of parse(text)) {
      if (failure !== undefined) return;
      const callback = waiting.get(told.number);
      waiting.delete(told.number);
      try {
        callback(told.error ? failedWith(told.error) : undefined, told);
      } catch (thrown) { fail(thrown); }
    }
  }

  // Joined, because the cell is handed plain strings only, and long sums are ropes.
  const told = (letter, text) => [letter, text].join("");

  function drain() {
    if (failure === undefined && queue.length) return told("O[", [queue.splice(0, given.batchMax).join(","), "]"].join(""));
    const end = { logged };
    if (failure !== undefined) end.failure = failure;
    else {
      try {
        if (isRequestBodySet) end.requestBody = requestBody;
        if (isResponseBodySet) end.responseBody = responseBody;
        return told("E", stringify(end));
      } catch (thrown) { return told("E", stringify({ logged, failure: described(thrown) })); }
    }
    return told("E", stringify(end));
  }

  return function step(kind, text, script) {
    if (kind === "begin") return begin(text, script);
    if (kind === "results") return results(text);
    return drain();
  };
})()
