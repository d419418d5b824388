// Drives gremlin-go, which speaks GraphBinary only, through the steps of tests/clients: scripts and bytecode.
package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	gremlin "github.com/apache/tinkerpop/gremlin-go/v3/driver"
)

var (
	client *gremlin.Client
	g      *gremlin.GraphTraversalSource
	quiet  = gremlin.Off
)

func main() {
	names := strings.Split(os.Getenv("ARMILLARY_GREMLIN_USER"), "/")
	database, graph := names[2], names[4]
	step("create-graph", func() error {
		if err := control("POST", "/databases", map[string]any{"name": database}, nil); err != nil {
			return err
		}
		return control("POST", "/databases/"+database+"/containers", map[string]any{"name": graph, "partitionKey": "/pk", "throughput": 20000}, nil)
	})
	step("connect", connect)
	if client == nil {
		return
	}
	scripts()
	bytecode()
	values()
	step("split-underneath-traversal", func() error {
		if err := splitPartition(database, graph); err != nil {
			return err
		}
		return script("g.V().hasLabel('person').count()", nil, 6)
	})
	step("throttled-429-retried", func() error {
		rule := map[string]any{"operations": "query", "database": database, "container": graph, "count": 1, "status": 429, "retryAfterMs": 10}
		if err := control("POST", "/faults", rule, nil); err != nil {
			return err
		}
		err := script("g.V().count()", nil, 6)
		if stop := control("DELETE", "/faults", nil, nil); stop != nil {
			return stop
		}
		if err == nil || !strings.Contains(err.Error(), "x-ms-retry-after-ms") {
			return fmt.Errorf("want a refusal, got %v", err)
		}
		return missing{"gremlin-go does not retry; the refusal names the time to wait"}
	})
	step("drop-all", func() error {
		if err := script("g.V().drop()", nil); err != nil {
			return err
		}
		return script("g.V().count()", nil, 0)
	})
	step("close", func() error { client.Close(); return nil })
}

func settings(user, password string) func(*gremlin.ClientSettings) {
	return func(settings *gremlin.ClientSettings) {
		settings.AuthInfo = gremlin.BasicAuthInfo(user, password)
		settings.LogVerbosity = quiet
	}
}

func connect() error {
	user, password := os.Getenv("ARMILLARY_GREMLIN_USER"), os.Getenv("ARMILLARY_KEY")
	opened, err := gremlin.NewClient(os.Getenv("ARMILLARY_GREMLIN"), settings(user, password))
	if err != nil {
		return err
	}
	client = opened
	connection, err := gremlin.NewDriverRemoteConnection(os.Getenv("ARMILLARY_GREMLIN"), func(settings *gremlin.DriverRemoteConnectionSettings) {
		settings.AuthInfo = gremlin.BasicAuthInfo(user, password)
		settings.LogVerbosity = quiet
	})
	if err != nil {
		return err
	}
	g = gremlin.Traversal_().WithRemote(connection)
	return script("g.inject(1)", nil, 1)
}

func answers(results []*gremlin.Result) []any {
	found := []any{}
	for _, result := range results {
		found = append(found, result.GetInterface())
	}
	return found
}

// script submits a text and compares its results in order.
func script(text string, bindings map[string]any, want ...any) error {
	answer, err := client.Submit(text, bindings)
	if err != nil {
		return err
	}
	results, err := answer.All()
	if err != nil {
		return err
	}
	if want == nil {
		want = []any{}
	}
	return expect("results", answers(results), want)
}

func refused(text, reason string) error {
	answer, err := client.Submit(text)
	if err == nil {
		_, err = answer.All()
	}
	if err == nil || !strings.Contains(err.Error(), reason) {
		return fmt.Errorf("want a refusal with %q, got %v", reason, err)
	}
	return nil
}

func traversed(name string, traversal func() *gremlin.GraphTraversal, want ...any) {
	step(name, func() error {
		results, err := traversal().ToList()
		if err != nil {
			return err
		}
		return expect("results", answers(results), want)
	})
}

func scripts() {
	people := []string{"marko", "vadas", "josh", "peter", "ripple", "lop"}
	step("script-add-vertices", func() error {
		for index, name := range people {
			err := script("g.addV('person').property('id', id).property('pk', pk).property('name', name).property('age', age).values('age')",
				map[string]any{"id": name, "pk": fmt.Sprintf("k%d", index), "name": name, "age": 20 + index}, 20+index)
			if err != nil {
				return err
			}
		}
		return nil
	})
	step("script-add-edges", func() error {
		for _, pair := range []string{"marko-vadas", "marko-josh", "josh-ripple", "josh-lop", "peter-lop"} {
			from, to, _ := strings.Cut(pair, "-")
			if err := script("g.V(a).addE('knows').property('weight', 0.5).to(g.V(b)).count()", map[string]any{"a": from, "b": to}, 1); err != nil {
				return err
			}
		}
		return nil
	})
	step("script-add-vertex-again-409", func() error { return refused("g.addV('person').property('id','marko').property('pk','k0')", "") })
	step("script-count", func() error { return script("g.V().count()", nil, 6) })
	step("script-has", func() error { return script("g.V().has('name', n).values('age')", map[string]any{"n": "josh"}, 22) })
	step("script-has-partition-key", func() error { return script("g.V(['k2', 'josh']).values('name')", nil, "josh") })
	step("script-out", func() error { return script("g.V('marko').out('knows').values('name').order()", nil, "josh", "vadas") })
	step("script-repeat", func() error {
		return script("g.V('marko').repeat(out()).times(2).values('name').order()", nil, "lop", "ripple")
	})
	step("script-order-limit", func() error {
		return script("g.V().order().by('age', decr).limit(2).values('name')", nil, "lop", "ripple")
	})
	step("script-range-pages", func() error {
		return script("g.V().order().by('age').range(2, 4).values('name')", nil, "josh", "peter")
	})
	step("script-sum-mean", func() error {
		return script("g.V().values('age').fold().project('sum', 'mean').by(sum(local)).by(mean(local)).select('sum')", nil, 135)
	})
	step("script-path", func() error {
		answer, err := client.Submit("g.V('peter').out().path().by('name')")
		if err != nil {
			return err
		}
		result, _, err := answer.One()
		if err != nil {
			return err
		}
		path, err := result.GetPath()
		if err != nil {
			return err
		}
		return expect("path", path.Objects, []string{"peter", "lop"})
	})
	step("script-update-property", func() error {
		if err := script("g.V('vadas').property('age', 99).values('age')", nil, 99); err != nil {
			return err
		}
		return script("g.V('vadas').values('age')", nil, 99)
	})
	step("script-drop-property", func() error {
		if err := script("g.V('vadas').properties('age').drop()", nil); err != nil {
			return err
		}
		return script("g.V('vadas').values('age').count()", nil, 0)
	})
	step("script-drop-edge", func() error {
		if err := script("g.V('peter').outE().drop()", nil); err != nil {
			return err
		}
		return script("g.E().count()", nil, 4)
	})
	step("script-many-results", func() error {
		want := []any{}
		for number := range 300 {
			want = append(want, number)
		}
		return script("g.inject(numbers).unfold()", map[string]any{"numbers": want}, want...)
	})
	step("script-syntax-error", func() error { return refused("g.V(.", "") })
	step("script-unknown-step", func() error { return refused("g.V().noSuchStep()", "noSuchStep") })
	step("script-charge-in-status", func() error {
		answer, err := client.Submit("g.V().count()")
		if err != nil {
			return err
		}
		if _, err := answer.All(); err != nil {
			return err
		}
		attributes := answer.GetStatusAttributes()
		if charge, ok := attributes["x-ms-total-request-charge"]; !ok {
			return fmt.Errorf("no charge in %v of %v", attributes, charge)
		}
		return nil
	})
	step("wrong-key-refused", func() error {
		other, err := gremlin.NewClient(os.Getenv("ARMILLARY_GREMLIN"), settings(os.Getenv("ARMILLARY_GREMLIN_USER"), "d3Jvbmcga2V5"))
		if err != nil {
			return nil
		}
		defer other.Close()
		answer, err := other.Submit("g.V().count()")
		if err == nil {
			_, err = answer.All()
		}
		if err == nil {
			return errors.New("a wrong key was accepted")
		}
		return nil
	})
	step("session", func() error {
		session, err := gremlin.NewClient(os.Getenv("ARMILLARY_GREMLIN"), settings(os.Getenv("ARMILLARY_GREMLIN_USER"), os.Getenv("ARMILLARY_KEY")),
			func(settings *gremlin.ClientSettings) { settings.Session = "s1" })
		if err != nil {
			return err
		}
		defer session.Close()
		answer, err := session.Submit("g.V().count()")
		if err == nil {
			_, err = answer.All()
		}
		if err == nil || !strings.Contains(err.Error(), "Sessions and transactions") {
			return fmt.Errorf("want a refusal, got %v", err)
		}
		return missing{"the Gremlin API has no sessions, and the server refuses them by name"}
	})
}

func bytecode() {
	named := func(name string) *gremlin.GraphTraversal { return g.V().Has("name", name) }
	traversed("bytecode-count", func() *gremlin.GraphTraversal { return g.V().Count() }, 6)
	traversed("bytecode-has", func() *gremlin.GraphTraversal { return named("josh").Values("age") }, 22)
	traversed("bytecode-predicate", func() *gremlin.GraphTraversal {
		return g.V().Has("age", gremlin.P.Between(22, 25)).Values("name").Order()
	}, "josh", "peter", "ripple")
	traversed("bytecode-order-descending", func() *gremlin.GraphTraversal {
		return g.V().Has("age").Order().By("age", gremlin.Order.Desc).Limit(2).Values("name")
	}, "lop", "ripple")
	traversed("bytecode-out", func() *gremlin.GraphTraversal { return named("marko").Out("knows").Values("name").Order() }, "josh", "vadas")
	traversed("bytecode-repeat", func() *gremlin.GraphTraversal {
		return named("marko").Repeat(gremlin.T__.Out()).Times(2).Values("name").Order()
	}, "lop", "ripple")
	traversed("bytecode-where", func() *gremlin.GraphTraversal {
		return g.V().Where(gremlin.T__.Out().Count().Is(gremlin.P.Gt(1))).Values("name").Order()
	}, "josh", "marko")
	traversed("bytecode-group-count", func() *gremlin.GraphTraversal {
		return g.V().GroupCount().By(gremlin.T.Label).Select(gremlin.Column.Values).Unfold()
	}, 6)
	traversed("bytecode-coalesce", func() *gremlin.GraphTraversal {
		return named("vadas").Coalesce(gremlin.T__.Values("age"), gremlin.T__.Constant("none"))
	}, "none")
	traversed("bytecode-add-vertex", func() *gremlin.GraphTraversal {
		return g.AddV("thing").Property(gremlin.T.Id, "box").Property("pk", "k9").Property("size", 3.5).Values("size")
	}, 3.5)
	traversed("bytecode-add-edge", func() *gremlin.GraphTraversal {
		return g.V("marko").AddE("owns").To(gremlin.T__.V("box")).Label()
	}, "owns")
	traversed("bytecode-text-predicate", func() *gremlin.GraphTraversal {
		return g.V().Has("name", gremlin.TextP.StartingWith("ma")).Values("name")
	}, "marko")
	step("bytecode-iterate", func() error {
		if err := <-g.V("box").Drop().Iterate(); err != nil {
			return err
		}
		return script("g.V('box').count()", nil, 0)
	})
	step("bytecode-vertex", func() error {
		result, err := named("marko").Next()
		if err != nil {
			return err
		}
		vertex, err := result.GetVertex()
		if err != nil {
			return err
		}
		return expect("vertex", []any{vertex.Id, vertex.Label}, []string{"marko", "person"})
	})
	step("bytecode-edge", func() error {
		result, err := g.V("josh").OutE("knows").Limit(1).Next()
		if err != nil {
			return err
		}
		edge, err := result.GetEdge()
		if err != nil {
			return err
		}
		return expect("edge", []any{edge.OutV.Id, edge.Label}, []string{"josh", "knows"})
	})
	step("bytecode-value-map", func() error {
		result, err := g.V("peter").ValueMap("name", "age").Next()
		if err != nil {
			return err
		}
		found := map[string]any{}
		for key, value := range result.GetInterface().(map[any]any) {
			found[fmt.Sprint(key)] = value
		}
		return expect("map", found, map[string]any{"name": []string{"peter"}, "age": []int{23}})
	})
	step("bytecode-with-options", func() error {
		results, err := g.With("evaluationTimeout", 5000).V().Count().ToList()
		if err != nil {
			return err
		}
		return expect("results", answers(results), []int{6})
	})
	step("transaction", func() error {
		transaction := g.Tx()
		inside, err := transaction.Begin()
		if err == nil {
			_, err = inside.AddV("thing").Property(gremlin.T.Id, "gone").Property("pk", "k9").ToList()
		}
		if err == nil {
			err = transaction.Rollback()
		}
		if err != nil && strings.Contains(err.Error(), "Sessions and transactions") {
			return missing{"the Gremlin API has no transactions of several requests, and the server refuses them by name"}
		}
		if err != nil {
			return err
		}
		return script("g.V('gone').count()", nil, 0)
	})
}

func values() {
	step("values-of-all-kinds", func() error {
		for _, value := range []any{true, "text größe 🌍", int32(7), int64(1) << 40, 2.5, nil} {
			if err := script("g.inject(value)", map[string]any{"value": value}, value); err != nil {
				return err
			}
		}
		return nil
	})
	step("unicode-ids", func() error {
		if err := script("g.addV('thing').property('id', id).property('pk', 'k').id()", map[string]any{"id": "größe 数据 🌍"}, "größe 数据 🌍"); err != nil {
			return err
		}
		return script("g.V(id).drop()", map[string]any{"id": "größe 数据 🌍"})
	})
	step("many-requests-at-once", func() error {
		sets := []gremlin.ResultSet{}
		for number := range 50 {
			set, err := client.Submit("g.inject(n)", map[string]any{"n": number})
			if err != nil {
				return err
			}
			sets = append(sets, set)
		}
		found := []int{}
		for _, set := range sets {
			result, _, err := set.One()
			if err != nil {
				return err
			}
			number, err := result.GetInt()
			if err != nil {
				return err
			}
			found = append(found, number)
		}
		want := []int{}
		for number := range 50 {
			want = append(want, number)
		}
		if !slices.Equal(found, want) {
			return fmt.Errorf("got %v", found)
		}
		return nil
	})
}
