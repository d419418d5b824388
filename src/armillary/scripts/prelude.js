// What every run of a script begins with: short, because it is compiled each time. The object model (`objects.js`) takes
// its place among the globals when a script touches one of them. It evaluates to a function that takes the sources and
// gives the one that the cell drives: warm (compile more, while nobody waits), begin (the script is called), results
// (callbacks are called), drain (what is to be done next, or how it ended).
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
