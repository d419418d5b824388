// The released client adds and traverses, as scripts and with its own traversals: what
// tests/sdk/test_gremlin.py runs.
import gremlin from "gremlin";

const endpoint = process.env.TEST_GREMLIN_ENDPOINT;
const mimeType = process.env.TEST_FORM;
const authenticator = new gremlin.driver.auth.PlainTextSaslAuthenticator(process.env.TEST_USER, process.env.TEST_KEY);
const client = new gremlin.driver.Client(endpoint, { authenticator, traversalsource: "g", mimeType });
await client.open();
const add = (id) => client.submit("g.addV('person').property('id', id).property('pk', pk)", { id, pk: id[0] });
const ann = (await add("ann")).first();
await add("bob");
await add("cid");
const link = "g.V(from).addE('knows').to(__.V(to)).property('since', since)";
await client.submit(link, { from: "ann", to: "bob", since: 2001 });
const answer = await client.submit("g.V('ann').addE('knows').to(__.V('cid'))");
const charge = Number(answer.attributes.get?.("x-ms-request-charge") ?? answer.attributes["x-ms-request-charge"]);
const names = (await client.submit("g.V('ann').out('knows').id().order()")).toArray();
let refused = 0;
try {
  await client.submit("g.V().nonsense()");
} catch (error) {
  refused = error.statusCode;
}
await client.close();
const connection = new gremlin.driver.DriverRemoteConnection(endpoint, { authenticator, mimeType });
const g = gremlin.process.AnonymousTraversalSource.traversal().withRemote(connection);
const fluent = await g.V("ann").out("knows").id().order().toList();
await connection.close();
console.log(JSON.stringify({ added: ann.id, names, charge: charge > 0, refused, fluent }));
