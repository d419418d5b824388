// The part of the object model that not every script uses: operations on the collection, JavaScript query API
// (__.filter and the like, alone or in a chain), values of requests and responses, and the console. It receives what it
// needs from `objects.js`, and returns its functions by name.
(function (prelude) {
  "use strict";
  const { parse, stringify, NativeError, numbered, enqueue, accepts, collection, response, logged, given } = prelude;
  const READ_UNITS = 1, WRITE_UNITS = 5;
  const refused = (text, number = 400) => new numbered(number, text);
  const unsupported = (what) => { throw refused(`${what} is not supported.`); };

  // Operations.

  function optional(options, callback) {
    if (typeof options === "function" && (callback === undefined || typeof callback === "object")) [options, callback] = [callback, options];
    if (options !== undefined && options !== null && typeof options !== "object") throw refused("The options of an operation must be an object.");
    if (callback !== undefined && callback !== null && typeof callback !== "function") throw refused("The callback of an operation must be a function.");
    return [options || {}, callback];
  }

  // Links are checked when the call is made, as in the service: a wrong link is thrown as an error of the script.
  function checked(link, kind, partCount, isOwn) {
    const bare = typeof link === "string" ? link.replace(/^\/+|\/+$/g, "") : "", parts = bare.split("/");
    if (parts.length !== partCount || parts[0] !== "dbs" || parts[2] !== "colls" || (parts[4] ?? "docs") !== "docs")
      throw refused(`Invalid ${kind} link: "${String(link)}".`);
    if (!isOwn(bare, given())) throw refused(`A script works on the collection that it belongs to, and the link "${link}" is not of it.`);
    return link;
  }

  const container = (link) => checked(link, "collection", 4, (bare, { selfLink, altLink }) => bare === altLink || bare + "/" === selfLink);
  const document = (link) => checked(link, "document", 6, (bare, { selfLink, altLink }) => bare.startsWith(altLink + "/") || bare.startsWith(selfLink));

  function documentOf(body) {
    if (typeof body === "string") body = parse(body);
    if (body === null || typeof body !== "object" || Array.isArray(body)) throw refused("The document must be an object, or the JSON of one.");
    return body;
  }

  // Without a callback an error is thrown, and ends the script.
  function asked(operation, units, options, callback, pick) {
    [operation.options, callback] = optional(options, callback);
    return enqueue(operation, units, (error, told) => {
      if (error) {
        if (!callback) throw error;
        callback(error, undefined, {});
      } else if (callback) callback(...pick(told));
    });
  }

  const one = (told) => [undefined, told.body, told.options];
  const none = (told) => [undefined, told.options];

  const operations = {
    createDocument: (link, body, options, callback) =>
      asked({ verb: "create", link: container(link), body: documentOf(body) }, WRITE_UNITS, options, callback, one),
    upsertDocument: (link, body, options, callback) =>
      asked({ verb: "upsert", link: container(link), body: documentOf(body) }, WRITE_UNITS, options, callback, one),
    readDocument: (link, options, callback) =>
      asked({ verb: "read", link: document(link) }, READ_UNITS, options, callback, one),
    replaceDocument: (link, body, options, callback) =>
      asked({ verb: "replace", link: document(link), body: documentOf(body) }, WRITE_UNITS, options, callback, one),
    deleteDocument: (link, options, callback) =>
      asked({ verb: "delete", link: document(link) }, WRITE_UNITS, options, callback, none),
    readDocuments: (link, options, callback) =>
      asked({ verb: "feed", link: container(link) }, READ_UNITS, options, callback, one),
    queryDocuments(link, query, options, callback) {
      if (typeof query === "string") query = { query };
      if (query === null || typeof query !== "object") throw refused("The query must be a string, or an object with query and parameters.");
      return asked({ verb: "query", link: container(link), query }, READ_UNITS, options, callback, one);
    },
  };
  for (const verb of ["create", "read", "replace", "delete", "query", "upsert"]) {
    const name = verb === "query" ? "queryAttachments" : `${verb}Attachment`;
    operations[name] = () => unsupported(`${name}: there are no attachments, and it`);
  }
  operations.readAttachments = () => unsupported("readAttachments: there are no attachments, and it");

  // The JavaScript query API. Each stage maps rows to rows; one that `needsAll` must see every document first.

  function flat(rows, isShallow) {
    const made = [];
    for (const row of rows) {
      if (Array.isArray(row)) for (const each of isShallow ? row : flat(row, false)) made.push(each);
      else made.push(row);
    }
    return made;
  }

  // The order of ORDER BY for values of different types.
  function rank(value) {
    if (value === null) return 1;
    if (Array.isArray(value)) return 5;
    return { undefined: 0, boolean: 2, number: 3, string: 4 }[typeof value] ?? 6;
  }

  function sorting(key, sign, name) {
    if (key === undefined) key = (row) => row;
    called(key, name);
    const stage = (rows) => {
      const keyed = rows.map((row, index) => { const value = key(row); return [rank(value), value, index, row]; });
      keyed.sort((a, b) => sign * (a[0] - b[0] || (a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0)) || a[2] - b[2]);
      return keyed.map((each) => each[3]);
    };
    stage.needsAll = true;
    return stage;
  }

  function called(value, name) {
    if (typeof value !== "function") throw refused(`${name} needs a function.`);
    return value;
  }

  const stages = {
    filter(predicate) {
      called(predicate, "filter");
      return (rows) => rows.filter((row) => predicate(row));
    },
    map(change) {
      called(change, "map");
      return (rows) => rows.map((row) => change(row));
    },
    pluck(name) {
      if (typeof name !== "string" || !name) throw refused("The name of the property to pluck must be a string that is not empty.");
      return (rows) => rows.map((row) => (row === null || row === undefined ? undefined : row[name])).filter((each) => each !== undefined);
    },
    flatten: (isShallow = false) => (rows) => flat(rows, isShallow),
    unwind(inner, result) {
      called(inner, "unwind");
      if (result !== undefined) called(result, "unwind");
      return (rows) => {
        const made = [];
        for (const row of rows) for (const each of inner(row) || []) made.push(result ? result(row, each) : each);
        return made;
      };
    },
    sortBy: (key) => sorting(key, 1, "sortBy"),
    sortByDescending: (key) => sorting(key, -1, "sortByDescending"),
  };

  // How many leading arguments belong to the stage; options and callback follow.
  const COUNTS = {
    filter: () => 1,
    map: () => 1,
    pluck: () => 1,
    flatten: (values) => (typeof values[0] === "boolean" ? 1 : 0),
    unwind: (values) => (isSelector(values[1]) || (typeof values[1] === "function" && values.length > 2) ? 2 : 1),
    sortBy: () => 1,
    sortByDescending: () => 1,
  };
  // unwind(inner, f): a selector takes two values, a callback three.
  const isSelector = (value) => typeof value === "function" && value.length === 2;
  const withoutCollection = (values) => (values[0] === collection || values[0] === globalThis.__ ? values.slice(1) : values);

  const READ_ITEMS_MAX = 1000;

  function pageSizeOf(options) {
    const size = options.pageSize || 100;
    if (size === -1) return Infinity;
    if (!Number.isInteger(size) || size < 1) throw refused("The option 'pageSize' must be a whole number above 0, or -1.");
    return size;
  }

  // A continuation: where a page of documents begins, and how many of its rows were returned.
  function placeOf(continuation) {
    if (continuation === undefined || continuation === null || continuation === "") return [0, undefined];
    const bar = typeof continuation === "string" ? continuation.indexOf("|") : -1;
    const skip = Number(continuation.slice?.(0, bar));
    if (bar < 1 || !Number.isInteger(skip) || skip < 0) throw refused("The continuation is not one of a query in JavaScript.");
    return [skip, continuation.slice(bar + 1) || undefined];
  }

  function run(made, options, callback) {
    [options, callback] = optional(options, callback);
    if (!callback && !given().hasResponse) throw refused("A query in a pre-trigger needs a callback: there is no response to put its rows into.");
    const { pageSize, continuation, enableScan, enableLowPrecisionOrderBy, ...others } = options;
    for (const name of Object.keys(others)) throw refused(`The option '${name}' is not supported by queries in JavaScript.`);
    const most = pageSizeOf(options);
    let [skip, start] = placeOf(continuation);
    const split = made.findLastIndex((stage) => stage.needsAll) + 1;
    const head = made.slice(0, split), tail = made.slice(split);
    const rows = [];
    let gathered = [], readSize = most;

    const deliver = (place) => {
      if (callback) callback(undefined, rows, place === undefined ? {} : { continuation: place });
      else response.setBody(rows);
    };
    const give = (error) => {
      if (!callback) throw error;
      callback(error, undefined, {});
    };
    // Take the rows of a page until the result is full; returns the index of the first row that does not fit, or -1.
    const take = (page) => {
      for (let index = skip; index < page.length; index++) {
        let each = [page[index]];
        for (const stage of tail) each = stage(each);
        if (rows.length && rows.length + each.length > most) return index;
        for (const row of each) rows.push(row);
      }
      skip = Math.max(0, skip - page.length);
      return -1;
    };
    const read = (at) => collection.readDocuments(given().selfLink, { pageSize: readSize === Infinity ? -1 : readSize, continuation: at }, (error, page, told) => {
      if (error) return give(error);
      const next = told.continuation;
      let full = -1;
      try {
        if (!split) full = take(page);
        else {
          gathered = gathered.concat(page);
          if (!next) {
            for (const stage of head) gathered = stage(gathered);
            full = take(gathered);
          }
        }
      } catch (thrown) { return give(thrown); }
      if (full >= 0) return deliver(`${full}|${split ? "" : at ?? ""}`);
      if (!next) return deliver();
      readSize = readSize === Infinity ? readSize : Math.min(Math.max(readSize, 50) * 2, READ_ITEMS_MAX);
      if (read(next)) return undefined;
      if (split) return give(refused("Sorting reads all documents, and the limits of this script do not allow that.", 408));
      return deliver(`0|${next}`);
    });
    if (split) start = undefined; // all documents are read again, whatever was returned before
    return { isAccepted: read(start) };
  }

  function chainOf(made) {
    const link = { isAccepted: accepts() };
    for (const name of Object.keys(stages)) {
      link[name] = (...values) => {
        values = withoutCollection(values);
        if (values.slice(name === "unwind" ? 2 : 1).some((each) => each !== undefined)) throw refused("In a chain, options and callback are given to value().");
        return chainOf([...made, stages[name](...values)]);
      };
    }
    link.value = (options, callback) => run(made, options, callback);
    return link;
  }

  const queries = { chain: () => chainOf([]) };
  for (const name of Object.keys(stages)) {
    queries[name] = (...values) => {
      values = withoutCollection(values);
      const count = COUNTS[name](values);
      return run([stages[name](...values.slice(0, count))], values[count], values[count + 1]);
    };
  }

  // Values by name.

  const accessor = (owner, verb, name) => {
    const found = { body: "Body", operationtype: "OperationType" }[String(name).toLowerCase()];
    const made = found && owner[verb + found];
    if (!made) throw refused(`The value '${String(name)}' is not supported here.`);
    return made;
  };

  // As in the service: a body is an empty string at first, and numbers are added to numbers.
  function joined(before = "", value) {
    if (before === null) return value;
    if (typeof before === "number" && typeof value === "number") return before + value;
    const shownAs = (each) => (typeof each === "string" ? each : each === undefined ? "" : stringify(each));
    return shownAs(before) + shownAs(value);
  }

  // console

  let loggedCharacters = 0;

  function shown(value) {
    if (typeof value === "string") return value;
    if (value instanceof NativeError) return String(value);
    if (value !== null && typeof value === "object") { try { return stringify(value); } catch (_) { return "[object]"; } }
    return String(value);
  }

  function log(...values) {
    let line = "";
    if (typeof values[0] === "string") {
      const rest = values.slice(1);
      line = values[0].replace(/%[sdifjoO%]/g, (form) => {
        if (form === "%%") return "%";
        if (!rest.length) return form;
        const value = rest.shift();
        if (form === "%d" || form === "%f") return String(Number(value));
        return form === "%i" ? String(Math.trunc(Number(value))) : shown(value);
      });
      line = [line, ...rest.map(shown)].join(" ");
    } else line = values.map(shown).join(" ");
    if (loggedCharacters + line.length > given().logCharactersMax) return;
    loggedCharacters += line.length + 1;
    logged.push(line);
  }

  return {
    ...operations,
    ...queries,
    joined,
    quota(name) {
      const { [name]: text } = given();
      if (text === undefined) throw refused("Quotas can be asked for in post-triggers only.");
      return text;
    },
    log,
    readValue: (owner, name) => accessor(owner, "get", name)(),
    writeValue: (owner, name, value) => accessor(owner, "set", name)(value),
    appendValue: (owner, name, value) => accessor(owner, "append", name)(value),
    spatial: () => unsupported("__.spatial: query with ST_DISTANCE and the like; it"),
  };
})
