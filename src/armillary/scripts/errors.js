// The service's Error constructor, which takes an optional number before the message. Evaluates to a function that
// replaces the engine's Error by it, and returns it.
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
