// Errors as scripts know them: the service's engine takes a number before the message. Evaluates to a function that
// puts such an Error in the place of the engine's own, and gives it.
(function (NativeError) {
  "use strict";
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
  Object.defineProperty(globalThis, "Error", { value: numbered, writable: true, configurable: true, enumerable: false });
  return numbered;
})
