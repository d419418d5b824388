// The first source of every script context; short, because it is compiled each time. The object model (`objects.js`) is
// compiled when a script first uses one of its globals. This source evaluates to a function that takes the other sources
// and returns the function that the cell calls: warm (compile more while the cell is idle), begin (call the script),
// results (call callbacks), drain (return the queued operations, or how the script ended).
(function (errorsSource, objectsSource, librarySource) {
  "use strict";
  const { parse } = JSON, now = Date.now, evaluate = eval, NativeError = Error;
  let given, objects;
  function load() {
    if (objects) return objects;
    objects = evaluate(objectsSource)(NativeError, errorsSource, librarySource);
    if (given) objects.begin(given);
    return objects;
  }
  for (const name of ["getContext", "__", "console", "Error", "ErrorCodes"]) {
    Object.defineProperty(globalThis, name, {
      configurable: true,
      get() { load(); return globalThis[name]; },
      set(value) { load(); globalThis[name] = value; },
    });
  }
  return function step(kind, text, script) {
    if (kind === "drain") return objects ? objects.drain() : 'E{"logged":[]}';
    if (kind === "results") return objects.results(text);
    if (kind === "warm") return void (objects ? objects.warm() : load());
    given = parse(text);
    given.begunMs = now();
    if (objects) objects.begin(given);
    try {
      const made = script(...given.arguments);
      if (made !== null && typeof made === "object" && typeof made.then === "function") made.then(undefined, (thrown) => load().fail(thrown));
    } catch (thrown) { load().fail(thrown); }
  };
})
