// What a button or a key asks for. Requests may be answered in another order than they were sent: the answer to an older
// question must not replace that to a newer one, and an older change must not be carried out after a newer one.

import { useEffect, useRef, useState } from "../vendor/core.js";

/**
 * Questions, of which only the newest is shown: what an older one is told later, and what is told after the view was
 * left, is dropped. `read` is given a signal that is aborted then, and may tell parts of its answer before it returns
 * the last; undefined is no answer. Requests that may write are not given the signal, since it would not be known
 * whether they did.
 */
export function useLatest() {
  const [state, setState] = useState({ error: /** @type {any} */ (null), isAsking: false });
  const newest = useRef(new AbortController());
  useEffect(() => () => newest.current.abort(), []);
  /** @template T @param {(signal: AbortSignal, tell: (found: T) => void) => Promise<T | undefined | void>} read @param {(found: T) => void} take */
  const ask = async (read, take) => {
    newest.current.abort();
    const { signal } = (newest.current = new AbortController());
    const tell = (/** @type {T} */ found) => {
      if (!signal.aborted) take(found);
    };
    setState({ error: null, isAsking: true });
    try {
      const found = await read(signal, tell);
      if (found !== undefined) tell(found);
      if (!signal.aborted) setState({ error: null, isAsking: false });
    } catch (error) {
      if (!signal.aborted) setState({ error, isAsking: false });
    }
  };
  /** End the newest question; what it has told stays. */
  const cancel = () => {
    newest.current.abort();
    setState({ error: null, isAsking: false });
  };
  return { ...state, ask, cancel };
}

/** Changes, each sent when the one before has ended, in the order in which they were asked for. */
export function useInTurn() {
  const [state, setState] = useState({ error: /** @type {any} */ (null), isActing: false });
  const last = useRef(Promise.resolve());
  const waiting = useRef(0);
  /** @param {() => Promise<any>} change */
  const act = (change) => {
    const carryOut = async () => {
      let error = null;
      try {
        await change();
      } catch (failure) {
        error = failure;
      }
      waiting.current -= 1;
      setState({ error, isActing: waiting.current > 0 });
    };
    waiting.current += 1;
    setState({ error: null, isActing: true });
    return (last.current = last.current.then(carryOut));
  };
  return { ...state, act };
}
