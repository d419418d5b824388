// Calls of the functions that commands of MongoDB carry ($where, $function, $accumulator, mapReduce). Evaluates to a
// function of one request: the sources of the functions, `this`, the arguments and global variables, all in extended
// JSON. Values of BSON that JavaScript has no type for are objects of the classes below.
(function () {
  "use strict";
  const { parse, stringify } = JSON;
  const compiled = new Map();
  const evaluate = globalThis.eval;
  let emitted = [];

  class ObjectId {
    constructor(text) { this.str = String(text); }
    toString() { return `ObjectId("${this.str}")`; }
    valueOf() { return this.str; }
    equals(other) { return other instanceof ObjectId && other.str === this.str; }
    getTimestamp() { return new Date(parseInt(this.str.slice(0, 8), 16) * 1000); }
    toHexString() { return this.str; }
  }
  class NumberLong {
    constructor(text) { this.text = String(text === undefined ? 0 : text); }
    toString() { return `NumberLong("${this.text}")`; }
    valueOf() { return Number(this.text); }
    toNumber() { return Number(this.text); }
  }
  class NumberDecimal {
    constructor(text) { this.text = String(text === undefined ? 0 : text); }
    toString() { return `NumberDecimal("${this.text}")`; }
    valueOf() { return Number(this.text); }
  }
  // Any other type: passed on unchanged.
  class BsonValue {
    constructor(tagged) { this.tagged = tagged; }
    toString() { return stringify(this.tagged); }
  }

  const tags = {
    $oid: (value) => new ObjectId(value.$oid),
    $date: (value) => new Date(Number(value.$date.$numberLong)),
    $numberLong: (value) => new NumberLong(value.$numberLong),
    $numberDouble: (value) => Number(value.$numberDouble),
    $numberDecimal: (value) => new NumberDecimal(value.$numberDecimal),
    $regularExpression: (value) => {
      try {
        return new RegExp(value.$regularExpression.pattern, value.$regularExpression.options);
      } catch {
        return new BsonValue(value);
      }
    },
    $binary: (value) => new BsonValue(value),
    $timestamp: (value) => new BsonValue(value),
    $minKey: (value) => new BsonValue(value),
    $maxKey: (value) => new BsonValue(value),
    $code: (value) => new BsonValue(value),
  };

  function decoded(value) {
    if (typeof value !== "object" || value === null) return value;
    if (Array.isArray(value)) return value.map(decoded);
    const names = Object.keys(value);
    if (names.length && Object.hasOwn(tags, names[0])) return tags[names[0]](value);
    const made = {};
    for (const name of names) made[name] = decoded(value[name]);
    return made;
  }

  function encoded(value) {
    switch (typeof value) {
      case "number":
        return Number.isFinite(value) ? value : { $numberDouble: String(value) };
      case "bigint":
        return { $numberLong: String(value) };
      case "undefined":
        return null;
      case "function":
        return { $code: String(value) };
      case "object":
        break;
      default:
        return value;
    }
    if (value === null) return null;
    if (Array.isArray(value)) return Array.from(value, encoded);
    if (value instanceof ObjectId) return { $oid: value.str };
    if (value instanceof Date) return { $date: { $numberLong: String(value.getTime()) } };
    if (value instanceof NumberLong) return { $numberLong: value.text };
    if (value instanceof NumberDecimal) return { $numberDecimal: value.text };
    if (value instanceof BsonValue) return value.tagged;
    if (value instanceof RegExp) {
      const options = [...value.flags].filter((flag) => "ims".includes(flag)).join("");
      return { $regularExpression: { pattern: value.source, options } };
    }
    if (value instanceof Number || value instanceof String || value instanceof Boolean) return encoded(value.valueOf());
    const made = {};
    for (const name of Object.keys(value)) if (value[name] !== undefined) made[name] = encoded(value[name]);
    return made;
  }

  function called(make) {
    return new Proxy(make, { apply: (target, self, values) => new target(...values) });
  }

  Object.assign(globalThis, {
    ObjectId: called(ObjectId),
    NumberLong: called(NumberLong),
    NumberDecimal: called(NumberDecimal),
    NumberInt: (value) => Math.trunc(Number(value)),
    ISODate: (text) => (text === undefined ? new Date() : new Date(text)),
    isNumber: (value) => typeof value === "number",
    isString: (value) => typeof value === "string",
    isObject: (value) => typeof value === "object" && value !== null,
    tojson: (value) => stringify(encoded(value)),
    emit: (key, value) => { emitted.push({ k: encoded(key), v: encoded(value) }); },
  });
  Array.sum = (values) => values.reduce((sum, each) => sum + each, 0);
  Array.avg = (values) => (values.length ? Array.sum(values) / values.length : null);

  function functionOf(source) {
    let found = compiled.get(source);
    if (found === undefined) {
      found = evaluate(`(${source}\n)`);
      if (typeof found !== "function") throw new TypeError("the source is not a function");
      compiled.set(source, found);
    }
    return found;
  }

  const actions = {
    // The value of one function.
    call: ({ source, this: self, values }) => encoded(functionOf(source).apply(decoded(self), decoded(values))),
    // Whether a function's value is true.
    test: ({ source, this: self }) => Boolean(functionOf(source).call(decoded(self))),
    // What a function passes to emit().
    emit: ({ source, this: self }) => {
      emitted = [];
      functionOf(source).call(decoded(self));
      return emitted;
    },
    // The state after a function was called with it and each of several lists of arguments.
    fold: ({ source, state, rows }) => {
      const step = functionOf(source);
      let now = decoded(state);
      for (const each of rows) now = step(now, ...decoded(each));
      return encoded(now);
    },
  };

  return function (request) {
    if (request.scope) Object.assign(globalThis, decoded(request.scope));
    return actions[request.action](request);
  };
})()
