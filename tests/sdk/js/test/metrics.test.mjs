// What queries took, and which indexes they used.
import assert from "node:assert/strict";
import test from "node:test";
import { withContainer } from "./support.mjs";

async function metricsAt(throughput) {
  await withContainer(
    async (container) => {
      for (let n = 0; n < 10; n++) await container.items.create({ id: `${n}`, pk: `k${n}`, n });
      const options = { populateQueryMetrics: true, populateIndexMetrics: true };
      for (const text of ["SELECT * FROM c WHERE c.n < 4", "SELECT * FROM c WHERE c.n < 4 ORDER BY c.n DESC"]) {
        const query = container.items.query(text, options);
        const metrics = [];
        let rows = 0;
        let used;
        while (query.hasMoreResults()) {
          const page = await query.fetchNext();
          rows += page.resources?.length ?? 0;
          metrics.push(...Object.values(page.queryMetrics ?? {}));
          if (page.indexMetrics !== "{}") used ??= JSON.parse(page.indexMetrics).UtilizedIndexes.SingleIndexes;
        }
        assert.equal(rows, 4);
        assert.ok(metrics.every((each) => each.totalQueryExecutionTime.totalMilliseconds() >= 0));
        assert.equal(metrics.reduce((sum, each) => sum + each.outputDocumentCount, 0), 4);
        assert.deepEqual(used, [{ IndexSpec: "/n/?" }]);
      }
    },
    { throughput },
  );
}

test("query metrics: in one partition", () => metricsAt(400));

test("query metrics: in four partitions", () => metricsAt(20000));
