package main

import (
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func numbers(from, to int) []int {
	all := []int{}
	for number := from; number < to; number++ {
		all = append(all, number)
	}
	return all
}

func reads() {
	step("find-one", func() error {
		var found bson.M
		if err := people.FindOne(ctx, bson.M{"_id": "p-07", "region": "r7"}).Decode(&found); err != nil {
			return err
		}
		return expect("n", found["n"], 7)
	})
	step("find-missing", func() error {
		if err := people.FindOne(ctx, bson.M{"_id": "none"}).Err(); err != mongo.ErrNoDocuments {
			return fmt.Errorf("want no documents, got %v", err)
		}
		return nil
	})
	step("find-one-partition", func() error {
		cursor, err := people.Find(ctx, bson.M{"region": "r3"}, options.Find().SetSort(bson.M{"n": -1}))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("values", values, []int{51, 39, 27, 15, 3})
	})
	step("find-sorted-batches", func() error {
		cursor, err := people.Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"n": 1}).SetBatchSize(7))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("values", values, numbers(0, itemCount))
	})
	step("find-skip-limit", func() error {
		cursor, err := people.Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"n": 1}).SetSkip(10).SetLimit(5).SetBatchSize(2))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("values", values, numbers(10, 15))
	})
	step("find-projection", func() error {
		var found bson.M
		err := people.FindOne(ctx, bson.M{"n": 7}, options.FindOne().SetProjection(bson.M{"_id": 0, "home.city": 1, "scores": bson.M{"$slice": 1}, "n": 1})).Decode(&found)
		if err != nil {
			return err
		}
		return expect("document", found, bson.M{"home": bson.M{"city": "c2"}, "scores": bson.A{7}, "n": 7})
	})
	step("find-operators", func() error {
		cursor, err := people.Find(ctx, bson.M{"$or": bson.A{bson.M{"n": bson.M{"$gte": 58}}, bson.M{"home.city": "c1", "n": bson.M{"$lt": 5}}},
			"scores": bson.M{"$elemMatch": bson.M{"$gt": 0}}, "_id": bson.M{"$regex": "^p-"}}, options.Find().SetSort(bson.M{"n": 1}))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("values", values, []int{1, 58, 59})
	})
	step("find-collation", func() error {
		cursor, err := people.Find(ctx, bson.M{"team": "T1"}, options.Find().SetCollation(&options.Collation{Locale: "en", Strength: 2}))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("count", len(values), 20)
	})
	step("cursor-closed-early", func() error {
		cursor, err := people.Find(ctx, bson.M{}, options.Find().SetBatchSize(5))
		if err != nil {
			return err
		}
		if !cursor.Next(ctx) {
			return cursor.Err()
		}
		return cursor.Close(ctx)
	})
	step("count-documents", func() error {
		count, err := people.CountDocuments(ctx, bson.M{"team": "t1"})
		if err != nil {
			return err
		}
		return expect("count", count, 20)
	})
	step("estimated-count", func() error {
		count, err := people.EstimatedDocumentCount(ctx)
		if err != nil {
			return err
		}
		return expect("count", count, itemCount)
	})
	step("distinct", func() error {
		var values []string
		if err := people.Distinct(ctx, "team", bson.M{}).Decode(&values); err != nil {
			return err
		}
		slices.Sort(values)
		return expect("values", values, []string{"t0", "t1", "t2"})
	})
	step("explain", func() error {
		var plan bson.M
		err := database.RunCommand(ctx, bson.D{{Key: "explain", Value: bson.D{{Key: "find", Value: "people"}, {Key: "filter", Value: bson.M{"n": 3}}}},
			{Key: "verbosity", Value: "executionStats"}}).Decode(&plan)
		if err != nil {
			return err
		}
		if plan["queryPlanner"] == nil || plan["executionStats"] == nil {
			return fmt.Errorf("explain has neither plan nor statistics: %v", plan)
		}
		return nil
	})
	step("split-underneath-cursor", func() error {
		cursor, err := people.Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"n": 1}).SetBatchSize(20))
		if err != nil {
			return err
		}
		if !cursor.Next(ctx) {
			return cursor.Err()
		}
		if err := splitPartition(databaseName, "people"); err != nil {
			return err
		}
		values := []any{cursor.Current.Lookup("n").AsInt64()}
		for cursor.Next(ctx) {
			values = append(values, cursor.Current.Lookup("n").AsInt64())
		}
		if cursor.Err() != nil {
			return cursor.Err()
		}
		return expect("values", values, numbers(0, itemCount))
	})
	step("throttled-16500-retried", func() error {
		var rule struct {
			ID   any `json:"id"`
			Hits int `json:"hits"`
		}
		err := control("POST", "/faults", map[string]any{"operations": "query", "database": databaseName, "container": "people", "count": 1, "status": 429, "retryAfterMs": 10}, &rule)
		if err != nil {
			return err
		}
		err = people.FindOne(ctx, bson.M{"region": "r3"}).Err()
		if stop := control("DELETE", "/faults", nil, nil); stop != nil {
			return stop
		}
		if err == nil {
			return nil
		}
		if refused := expectCode(err, 16500); refused != nil {
			return refused
		}
		return missing{"drivers do not retry 16500 (TooManyRequests); the application does, as with the service without server-side retries"}
	})
}

// totals runs a pipeline and compares all of its documents.
func totals(name string, pipeline mongo.Pipeline, want any) {
	step(name, func() error {
		cursor, err := people.Aggregate(ctx, pipeline)
		if err != nil {
			return err
		}
		var rows []bson.M
		if err := cursor.All(ctx, &rows); err != nil {
			return err
		}
		return expect("rows", rows, want)
	})
}

func stage(name string, body any) bson.D { return bson.D{{Key: name, Value: body}} }

func aggregations() {
	totals("aggregate-group", mongo.Pipeline{
		stage("$group", bson.M{"_id": "$team", "count": bson.M{"$sum": 1}, "total": bson.M{"$sum": "$n"}, "average": bson.M{"$avg": "$n"}}), stage("$sort", bson.M{"_id": 1})},
		[]bson.M{{"_id": "t0", "count": 20, "total": 570, "average": 28.5}, {"_id": "t1", "count": 20, "total": 590, "average": 29.5}, {"_id": "t2", "count": 20, "total": 610, "average": 30.5}})
	totals("aggregate-unwind", mongo.Pipeline{stage("$match", bson.M{"n": bson.M{"$lt": 3}}), stage("$unwind", "$scores"),
		stage("$group", bson.M{"_id": nil, "total": bson.M{"$sum": "$scores"}})}, []bson.M{{"_id": nil, "total": 9}})
	totals("aggregate-facet", mongo.Pipeline{stage("$facet", bson.M{
		"few":  bson.A{stage("$sort", bson.M{"n": 1}), stage("$limit", 2), stage("$project", bson.M{"_id": 0, "n": 1})},
		"many": bson.A{stage("$count", "count")}})}, []bson.M{{"few": bson.A{bson.M{"n": 0}, bson.M{"n": 1}}, "many": bson.A{bson.M{"count": 60}}}})
	totals("aggregate-window", mongo.Pipeline{stage("$match", bson.M{"n": bson.M{"$lt": 4}}), stage("$setWindowFields", bson.M{"sortBy": bson.M{"n": 1},
		"output": bson.M{"running": bson.M{"$sum": "$n", "window": bson.M{"documents": bson.A{"unbounded", "current"}}}}}),
		stage("$project", bson.M{"_id": 0, "running": 1})}, []bson.M{{"running": 0}, {"running": 1}, {"running": 3}, {"running": 6}})
	totals("aggregate-bucket", mongo.Pipeline{stage("$bucket", bson.M{"groupBy": "$n", "boundaries": bson.A{0, 10, 60}})},
		[]bson.M{{"_id": 0, "count": 10}, {"_id": 10, "count": 50}})
	step("aggregate-lookup", func() error {
		if _, err := database.Collection("teams").InsertOne(ctx, bson.M{"_id": "t1", "name": "one"}); err != nil {
			return err
		}
		cursor, err := people.Aggregate(ctx, mongo.Pipeline{stage("$match", bson.M{"n": 1}),
			stage("$lookup", bson.M{"from": "teams", "localField": "team", "foreignField": "_id", "as": "joined"}), stage("$set", bson.M{"name": bson.M{"$first": "$joined.name"}})})
		values, err := column(cursor, err, "name")
		if err != nil {
			return err
		}
		return expect("names", values, []string{"one"})
	})
	step("aggregate-out", func() error {
		cursor, err := people.Aggregate(ctx, mongo.Pipeline{stage("$match", bson.M{"team": "t2"}), stage("$out", "copied")})
		if err != nil {
			return err
		}
		if err := cursor.Close(ctx); err != nil {
			return err
		}
		count, err := database.Collection("copied").CountDocuments(ctx, bson.M{})
		if err != nil {
			return err
		}
		return expect("count", count, 20)
	})
	step("aggregate-batches", func() error {
		cursor, err := people.Aggregate(ctx, mongo.Pipeline{stage("$sort", bson.M{"n": 1})}, options.Aggregate().SetBatchSize(9))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("values", values, numbers(0, itemCount))
	})
	step("view", func() error {
		if err := database.CreateView(ctx, "teamOne", "people", mongo.Pipeline{stage("$match", bson.M{"team": "t1"})}); err != nil {
			return err
		}
		count, err := database.Collection("teamOne").CountDocuments(ctx, bson.M{})
		if err != nil {
			return err
		}
		return expect("count", count, 20)
	})
}

func indexes() {
	unique := database.Collection("unique")
	step("index-create", func() error {
		names, err := people.Indexes().CreateMany(ctx, []mongo.IndexModel{
			{Keys: bson.D{{Key: "team", Value: 1}, {Key: "n", Value: -1}}}, {Keys: bson.D{{Key: "home.city", Value: 1}}, Options: options.Index().SetName("city").SetSparse(true)}})
		if err != nil {
			return err
		}
		return expect("names", names, []string{"team_1_n_-1", "city"})
	})
	step("index-list", func() error {
		specifications, err := people.Indexes().ListSpecifications(ctx)
		if err != nil {
			return err
		}
		names := []string{}
		for _, found := range specifications {
			names = append(names, found.Name)
		}
		return expect("names", names, []string{"_id_", "team_1_n_-1", "city"})
	})
	step("index-hint", func() error {
		cursor, err := people.Find(ctx, bson.M{"team": "t1", "n": bson.M{"$lt": 8}}, options.Find().SetHint("team_1_n_-1"))
		values, err := column(cursor, err, "n")
		if err != nil {
			return err
		}
		return expect("count", len(values), 3)
	})
	step("index-drop", func() error {
		if err := people.Indexes().DropOne(ctx, "city"); err != nil {
			return err
		}
		return expectCode(people.Indexes().DropOne(ctx, "city"), 27)
	})
	step("index-unique", func() error {
		if _, err := unique.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"mail": 1}, Options: options.Index().SetUnique(true)}); err != nil {
			return err
		}
		if _, err := unique.InsertOne(ctx, bson.M{"mail": "m"}); err != nil {
			return err
		}
		_, err := unique.InsertOne(ctx, bson.M{"mail": "m"})
		if !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("want a duplicate key, got %v", err)
		}
		return nil
	})
	step("ttl-expires", func() error {
		fading := database.Collection("fading")
		if _, err := fading.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"_ts": 1}, Options: options.Index().SetExpireAfterSeconds(30)}); err != nil {
			return err
		}
		if _, err := fading.InsertOne(ctx, bson.M{"_id": 1}); err != nil {
			return err
		}
		if err := control("POST", "/clock", map[string]any{"advanceSeconds": 31}, nil); err != nil {
			return err
		}
		count, err := fading.CountDocuments(ctx, bson.M{})
		if err != nil {
			return err
		}
		return expect("count", count, 0)
	})
	step("geo-near", func() error {
		places := database.Collection("places")
		if _, err := places.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"at": "2dsphere"}}); err != nil {
			return err
		}
		for index, longitude := range []float64{10, 11, 20} {
			if _, err := places.InsertOne(ctx, bson.M{"_id": index, "at": bson.M{"type": "Point", "coordinates": bson.A{longitude, 50.0}}}); err != nil {
				return err
			}
		}
		cursor, err := places.Find(ctx, bson.M{"at": bson.M{"$near": bson.M{"$geometry": bson.M{"type": "Point", "coordinates": bson.A{10.9, 50.0}}, "$maxDistance": 100000}}})
		values, err := column(cursor, err, "_id")
		if err != nil {
			return err
		}
		return expect("ids", values, []int{1, 0})
	})
	step("text-search", func() error {
		notes := database.Collection("notes")
		if _, err := notes.Indexes().CreateOne(ctx, mongo.IndexModel{Keys: bson.M{"text": "text"}}); err != nil {
			return err
		}
		if _, err := notes.InsertMany(ctx, []any{bson.M{"_id": 1, "text": "blue whales"}, bson.M{"_id": 2, "text": "red foxes"}}); err != nil {
			return err
		}
		cursor, err := notes.Find(ctx, bson.M{"$text": bson.M{"$search": "whale"}})
		values, err := column(cursor, err, "_id")
		if err != nil {
			return err
		}
		return expect("ids", values, []int{1})
	})
}
