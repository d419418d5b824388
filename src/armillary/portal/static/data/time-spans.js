// The last hour, day or month as views ask for it: so many whole columns, the last of which is not finished. The server
// takes the finest of its columns of which a window has at most 360, so a window that is a few seconds longer, or begins
// within a column, would be shown with coarser ones.

import { reading } from "./client.js";

/** The longest span that is shown with columns of so many seconds. */
const COLUMNS = [[3_600, 10], [21_600, 60], [345_600, 1_200], [2_419_200, 7_200]];

/** The parameters of a request for the last seconds. @param {number} seconds @param {AbortSignal} signal */
export async function lastSeconds(seconds, signal) {
  const { nowSeconds } = await reading("clock")(signal);
  const [, column] = COLUMNS.find(([longest]) => seconds <= longest) ?? COLUMNS[COLUMNS.length - 1];
  const end = (Math.floor(nowSeconds / column) + 1) * column;
  return `from=${end - seconds}&to=${end}`;
}
