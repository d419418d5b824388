// How many partitions a throughput makes, by the server's own rule (docs/partitioning.md): manual throughput keeps
// headroom in new containers, and a container with partitions splits only when they cannot carry it.

import { server } from "../data/resources.js";
import { count, plural } from "./numbers.js";

const INITIAL_SHARE = 0.6;

export const partitionRu = () => server.value?.limits?.partitionThroughputRu ?? 10000;

/** @param {number} ru @param {boolean} isAutoscale */
export function initialPartitions(ru, isAutoscale) {
  const carried = isAutoscale ? partitionRu() : partitionRu() * INITIAL_SHARE;
  return Math.max(1, Math.ceil(ru / carried));
}

/** What a new throughput does to a container with partitions. @param {number} ru @param {number} present */
export function scaledSentence(ru, present) {
  const needed = Math.ceil(ru / partitionRu());
  if (needed <= present) return `${plural(present, "partition")} stay, each with ${count(ru / present)} RU/s.`;
  if (needed >= 2 * present) return `All ${plural(present, "partition")} are split; there will be at least ${needed}, each with ${count(ru / needed)} RU/s.`;
  const even = 2 * present * partitionRu();
  return `Splits ${needed - present} of ${plural(present, "partition")}, there will be ${needed}; even again at ${count(even)} RU/s.`;
}
