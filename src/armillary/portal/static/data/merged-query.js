// Queries page by page. One that the server answers in its final form is asked for as it is; one that clients have to
// merge (ORDER BY, aggregates, GROUP BY, DISTINCT, TOP over several partitions) is asked of each partition in the form
// that the server's plan has for it, and merged here, as the SDKs do it.

import { collectionPath, sql } from "./client.js";
import { FEATURES, queryPage } from "./items.js";
import { aggregator, compareKeys, grouped } from "./query-merging.js";

const NEEDS_PLAN = "1004";
const FILTER = "{documentdb-formattableorderbyquery-filter}";

/**
 * @typedef {Awaited<ReturnType<typeof queryPage>>} Page
 * @typedef {{query: string, parameters: any[], key: any[] | null}} Asked
 */

/** A query and where it stands. `page` reads on; `isDone` when there is no more. */
export class RunningQuery {
  /** @param {string} database @param {string} container @param {Asked} asked */
  constructor(database, container, asked) {
    this.place = /** @type {[string, string]} */ ([database, container]);
    this.asked = asked;
    this.isDone = false;
    /** @type {string | null} */ this.continuation = null;
    /** @type {Merging | null} */ this.merging = null;
  }

  /** @param {number} count @param {AbortSignal} signal @returns {Promise<Page>} */
  async page(count, signal) {
    if (!this.merging) {
      try {
        const page = await queryPage(...this.place, { ...this.asked, continuation: this.continuation, count, signal });
        this.continuation = page.continuation;
        this.isDone = !page.continuation;
        return page;
      } catch (error) {
        if (error.subStatus !== NEEDS_PLAN) throw error;
        this.merging = await Merging.begin(this.place, this.asked, signal);
      }
    }
    const page = await this.merging.page(count, signal);
    this.isDone = this.merging.isDone;
    return page;
  }
}

/** The rows of one partition, in its order. */
class Source {
  /** @param {number} id */
  constructor(id) {
    this.id = id;
    /** @type {any[]} */ this.rows = [];
    /** @type {string | null} */ this.continuation = null;
    this.isRead = false;
  }

  get isEnd() {
    return this.isRead && this.rows.length === 0 && !this.continuation;
  }
}

class Merging {
  /** @param {[string, string]} place @param {Asked} asked @param {any} info @param {Source[]} sources @param {number} planRu */
  constructor(place, asked, info, sources, planRu) {
    this.place = place;
    this.asked = { ...asked, query: (info.rewrittenQuery || asked.query).replaceAll(FILTER, "true") };
    this.info = info;
    this.sources = sources;
    this.skipped = info.offset ?? 0;
    this.left = info.limit ?? info.top ?? Infinity;
    this.seen = new Set();
    this.isDone = false;
    this.planRu = planRu;
    this.rowCount = 0;
  }

  /** @param {[string, string]} place @param {Asked} asked @param {AbortSignal} signal */
  static async begin(place, asked, signal) {
    const path = collectionPath(...place);
    const headers = { "content-type": "application/query+json", "x-ms-cosmos-is-query-plan-request": "true", "x-ms-cosmos-supported-query-features": FEATURES };
    const plan = await sql("POST", `${path}/docs`, { query: asked.query, parameters: asked.parameters }, { headers, signal });
    const info = plan.body.queryInfo;
    if (!info || info.hasNonStreamingOrderBy || info.dCountInfo) throw new Error("The portal does not merge queries of this form over partitions (vector and hybrid search, COUNT of a DISTINCT subquery). Give a partition key, or use an SDK.");
    const ranges = await sql("GET", `${path}/pkranges`, undefined, { signal });
    const sources = ranges.body.PartitionKeyRanges.sort((/** @type {any} */ a, /** @type {any} */ b) => (a.minInclusive < b.minInclusive ? -1 : 1)).map((/** @type {any} */ each) => new Source(Number(each.id)));
    return new Merging(place, asked, info, sources, plan.chargeRu);
  }

  /** @param {number} count @param {AbortSignal} signal @returns {Promise<Page>} */
  async page(count, signal) {
    const bill = new Bill();
    bill.add(null, this.planRu, [{ what: "make the plan", ru: this.planRu }]);
    this.planRu = 0;
    const fill = async (/** @type {Source} */ source) => {
      if (source.rows.length > 0 || source.isEnd) return;
      const page = await queryPage(...this.place, { ...this.asked, key: null, rangeId: source.id, continuation: source.continuation, count, signal });
      source.rows = page.rows;
      source.continuation = page.continuation;
      source.isRead = true;
      bill.take(source.id, page);
      if (page.rows.length === 0 && page.continuation) await fill(source);
    };
    const { info } = this;
    const rows = [];
    const isWhole = info.aggregates.length > 0 || info.groupByAliases.length > 0;
    if (isWhole) {
      const all = [];
      for (const source of this.sources) while (!source.isEnd) (await fill(source), all.push(...source.rows.splice(0)));
      const merged = info.groupByAliases.length > 0 ? grouped(all, info) : [aggregator(info.aggregates[0], all.map((row) => row[0]?.item))].filter((each) => each !== undefined);
      for (const row of merged) if (this.takes(row)) rows.push(row);
      this.isDone = true;
    } else if (info.orderBy.length > 0) {
      await Promise.all(this.sources.map(fill));
      while (rows.length < count && this.left > 0) {
        const open = this.sources.filter((each) => each.rows.length > 0);
        if (open.length === 0) break;
        const first = open.reduce((a, b) => (compareKeys(b.rows[0].orderByItems, a.rows[0].orderByItems, info.orderBy) < 0 ? b : a));
        const row = first.rows.shift();
        if (this.takes(row.payload)) rows.push(row.payload);
        if (first.rows.length === 0) await fill(first);
      }
      this.isDone = this.left <= 0 || this.sources.every((each) => each.isEnd);
    } else {
      for (const source of this.sources) {
        while (rows.length < count && this.left > 0 && !source.isEnd) {
          await fill(source);
          while (source.rows.length > 0 && rows.length < count && this.left > 0) {
            const row = source.rows.shift();
            if (this.takes(row)) rows.push(row);
          }
        }
      }
      this.isDone = this.left <= 0 || this.sources.every((each) => each.isEnd);
    }
    return bill.page(rows);
  }

  /** Whether a row is one of the result: not seen before, not skipped, within the limit. @param {any} row */
  takes(row) {
    if (this.info.distinctType !== "None") {
      const text = JSON.stringify(row);
      if (this.seen.has(text)) return false;
      this.seen.add(text);
    }
    if (this.skipped > 0) {
      this.skipped -= 1;
      return false;
    }
    if (this.left <= 0) return false;
    this.left -= 1;
    return true;
  }
}

/** What the requests of one page cost, by partition and by part. */
class Bill {
  constructor() {
    this.begun = performance.now();
    this.chargeRu = 0;
    /** @type {any[]} */ this.parts = [];
    /** @type {Map<number, any>} */ this.partitions = new Map();
    /** @type {Page | null} */ this.last = null;
  }

  /** @param {number | null} id @param {number} ru @param {any[]} parts */
  add(id, ru, parts) {
    this.chargeRu += ru;
    if (ru > 0) this.parts.push(...parts);
    if (id === null) return;
    const entry = this.partitions.get(id) ?? { id, ru: 0, loaded: 0, returned: 0 };
    entry.ru += ru;
    this.partitions.set(id, entry);
  }

  /** @param {number} id @param {Page} page */
  take(id, page) {
    this.add(id, page.chargeRu, page.parts);
    const entry = this.partitions.get(id);
    entry.loaded += Number(/retrievedDocumentCount=(\d+)/.exec(page.metrics)?.[1] ?? 0);
    entry.returned += page.rows.length;
    entry.by ??= page.partitions?.[0]?.by;
    this.last = page;
  }

  /** @param {any[]} rows @returns {Page} */
  page(rows) {
    const { last } = this;
    return {
      rows, continuation: null, chargeRu: this.chargeRu, ms: performance.now() - this.begun, parts: this.parts,
      partitions: [...this.partitions.values()].sort((a, b) => b.ru - a.ru),
      indexes: last?.indexes ?? null, advice: last?.advice ?? [], metrics: last?.metrics ?? "",
    };
  }
}
