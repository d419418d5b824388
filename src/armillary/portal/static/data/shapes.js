// Shapes of the control API's answers, for the type checker. docs/control.md describes them.

/**
 * @typedef {{ru: number, autoscale: boolean, minimumRu: number, currentRu: number, billedRu: number, pending: boolean, sharedByDatabase?: boolean}} Throughput
 * @typedef {{name: string, containerCount: number, items: number, bytes: number, throughput: Throughput | null}} Database
 * @typedef {{database: string, name: string, partitionKey: string[] | null, fixed: boolean, throughput: Throughput | null, mode: string, buckets?: Record<string, number>, partitionCount: number, items: number, bytes: number}} Container
 * @typedef {{id: number, low: string, high: string, parents?: number[], bytes: number, items: number, budgetRu: number | null, spentRu: number, requests: number, refused: number, wouldBeRefused: number, full?: number, spark?: number[]}} Partition
 * @typedef {{number: number, kind: "split" | "merge", reason: string, partitions: number[], children: {low: string, high: string}[], point: string, paused: boolean, waitsFor: string | null, itemsTotal: number, itemsCopied: number, bytesCopied: number, changesApplied: number}} Reshape
 * @typedef {{number: number, time: number | string, kind: string, database?: string, container?: string, text: string}} Event
 * @typedef {{key: any, partition: number, items: number, bytes: number, chargedRu?: number, full?: number, fullSince?: number}} KeyFigures
 */

export {};
