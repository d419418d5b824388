// Amounts of money, always with their currency, and where the prices come from.

import { count, isKnown, UNKNOWN } from "./numbers.js";

/** @param {number | null | undefined} amount @param {string} currency */
export const money = (amount, currency) => (isKnown(amount) ? `${count(amount, amount >= 1000 ? 0 : 2)} ${currency}` : UNKNOWN);

/** @param {{asOf: string, source: string, currency: string}} prices */
export const pricesSentence = (prices) => `Prices as of ${prices.asOf} in ${prices.currency}: ${prices.source}. Check them before you decide.`;
