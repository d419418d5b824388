// Drives the MongoDB Go driver through the steps of tests/clients.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const itemCount = 60

var (
	ctx          = context.Background()
	client       *mongo.Client
	databaseName = os.Getenv("ARMILLARY_DATABASE")
	database     *mongo.Database
	people       *mongo.Collection
)

func main() {
	step("connect", func() error {
		var err error
		client, err = mongo.Connect(options.Client().ApplyURI(os.Getenv("ARMILLARY_MONGO")))
		if err != nil {
			return err
		}
		database = client.Database(databaseName)
		people = database.Collection("people")
		return client.Ping(ctx, nil)
	})
	resources()
	writes()
	reads()
	aggregations()
	indexes()
	sessions()
	streams()
	files()
	deleteResources()
}

// expectCode passes if the server refused the request with this code.
func expectCode(err error, code int) error {
	var refusal mongo.ServerError
	if !errors.As(err, &refusal) {
		return fmt.Errorf("want code %d, got %v", code, err)
	}
	if !refusal.HasErrorCode(code) {
		return fmt.Errorf("want code %d, got %v", code, err)
	}
	return nil
}

func person(number int) bson.M {
	return bson.M{"_id": fmt.Sprintf("p-%02d", number), "region": fmt.Sprintf("r%d", number%12), "n": number,
		"team": fmt.Sprintf("t%d", number%3), "scores": bson.A{number, number * 2}, "home": bson.M{"city": fmt.Sprintf("c%d", number%5)}}
}

// column reads all documents of a cursor and returns one field of each.
func column(cursor *mongo.Cursor, err error, name string) ([]any, error) {
	if err != nil {
		return nil, err
	}
	var documents []bson.M
	if err := cursor.All(ctx, &documents); err != nil {
		return nil, err
	}
	values := []any{}
	for _, found := range documents {
		values = append(values, found[name])
	}
	return values, nil
}

func resources() {
	step("create-collection-four-partitions", func() error {
		command := bson.D{{Key: "customAction", Value: "CreateCollection"}, {Key: "collection", Value: "people"},
			{Key: "shardKey", Value: "region"}, {Key: "offerThroughput", Value: 20000}}
		if err := database.RunCommand(ctx, command).Err(); err != nil {
			return err
		}
		var partitions struct {
			Partitions []map[string]any `json:"partitions"`
		}
		if err := control("GET", "/databases/"+databaseName+"/containers/people/partitions", nil, &partitions); err != nil {
			return err
		}
		return expect("partitions", len(partitions.Partitions), 4)
	})
	step("create-collection", func() error { return database.CreateCollection(ctx, "plain") })
	step("create-collection-again-refused", func() error {
		return expectCode(database.CreateCollection(ctx, "plain", options.CreateCollection().SetCapped(true).SetSizeInBytes(4096)), 48)
	})
	step("list-collections", func() error {
		names, err := database.ListCollectionNames(ctx, bson.D{{Key: "name", Value: bson.M{"$in": bson.A{"people", "plain"}}}})
		if err != nil {
			return err
		}
		return expect("count", len(names), 2)
	})
	step("list-databases", func() error {
		names, err := client.ListDatabaseNames(ctx, bson.M{"name": databaseName})
		if err != nil {
			return err
		}
		return expect("names", names, []string{databaseName})
	})
	step("build-info", func() error {
		var info bson.M
		if err := database.RunCommand(ctx, bson.M{"buildInfo": 1}).Decode(&info); err != nil {
			return err
		}
		if info["version"] == nil {
			return errors.New("no version")
		}
		return nil
	})
	step("unknown-command-refused", func() error {
		return expectCode(database.RunCommand(ctx, bson.M{"noSuchCommand": 1}).Err(), 59)
	})
}

func writes() {
	step("insert-one", func() error {
		answer, err := people.InsertOne(ctx, bson.M{"_id": "one", "region": "single", "n": -1})
		if err != nil {
			return err
		}
		return expect("id", answer.InsertedID, "one")
	})
	step("insert-duplicate-11000", func() error {
		_, err := people.InsertOne(ctx, bson.M{"_id": "one", "region": "single"})
		if !mongo.IsDuplicateKeyError(err) {
			return fmt.Errorf("want a duplicate key, got %v", err)
		}
		return nil
	})
	step("insert-many", func() error {
		documents := []any{}
		for number := range itemCount {
			documents = append(documents, person(number))
		}
		answer, err := people.InsertMany(ctx, documents)
		if err != nil {
			return err
		}
		return expect("count", len(answer.InsertedIDs), itemCount)
	})
	step("update-one", func() error {
		answer, err := people.UpdateOne(ctx, bson.M{"_id": "one", "region": "single"},
			bson.M{"$set": bson.M{"name": "first"}, "$inc": bson.M{"n": 5}, "$push": bson.M{"tags": bson.M{"$each": bson.A{"a", "b"}}}})
		if err != nil {
			return err
		}
		return expect("counts", []any{answer.MatchedCount, answer.ModifiedCount}, []int{1, 1})
	})
	step("update-many", func() error {
		answer, err := people.UpdateMany(ctx, bson.M{"team": "t0"}, bson.M{"$set": bson.M{"marked": true}})
		if err != nil {
			return err
		}
		return expect("modified", answer.ModifiedCount, 20)
	})
	step("update-with-pipeline", func() error {
		_, err := people.UpdateOne(ctx, bson.M{"_id": "one", "region": "single"},
			mongo.Pipeline{{{Key: "$set", Value: bson.M{"double": bson.M{"$multiply": bson.A{"$n", 2}}}}}})
		if err != nil {
			return err
		}
		var found bson.M
		if err := people.FindOne(ctx, bson.M{"_id": "one", "region": "single"}).Decode(&found); err != nil {
			return err
		}
		return expect("values", []any{found["n"], found["double"], found["tags"]}, []any{4, 8, bson.A{"a", "b"}})
	})
	step("update-array-filters", func() error {
		_, err := people.UpdateOne(ctx, bson.M{"_id": "one", "region": "single"}, bson.M{"$set": bson.M{"tags.$[tag]": "z"}},
			options.UpdateOne().SetArrayFilters([]any{bson.M{"tag": "b"}}))
		if err != nil {
			return err
		}
		var found bson.M
		if err := people.FindOne(ctx, bson.M{"_id": "one", "region": "single"}).Decode(&found); err != nil {
			return err
		}
		return expect("tags", found["tags"], bson.A{"a", "z"})
	})
	step("upsert", func() error {
		answer, err := people.UpdateOne(ctx, bson.M{"_id": "new", "region": "single"}, bson.M{"$set": bson.M{"n": 1}}, options.UpdateOne().SetUpsert(true))
		if err != nil {
			return err
		}
		return expect("upserted", []any{answer.UpsertedCount, answer.UpsertedID}, []any{1, "new"})
	})
	step("replace-one", func() error {
		answer, err := people.ReplaceOne(ctx, bson.M{"_id": "new", "region": "single"}, bson.M{"region": "single", "n": 2})
		if err != nil {
			return err
		}
		return expect("modified", answer.ModifiedCount, 1)
	})
	step("find-one-and-update", func() error {
		var found bson.M
		err := people.FindOneAndUpdate(ctx, bson.M{"_id": "new", "region": "single"}, bson.M{"$inc": bson.M{"n": 3}},
			options.FindOneAndUpdate().SetReturnDocument(options.After)).Decode(&found)
		if err != nil {
			return err
		}
		return expect("n", found["n"], 5)
	})
	step("find-one-and-replace", func() error {
		var found bson.M
		err := people.FindOneAndReplace(ctx, bson.M{"_id": "new", "region": "single"}, bson.M{"region": "single", "n": 9}).Decode(&found)
		if err != nil {
			return err
		}
		return expect("n before", found["n"], 5)
	})
	step("find-one-and-delete", func() error {
		var found bson.M
		if err := people.FindOneAndDelete(ctx, bson.M{"_id": "new", "region": "single"}).Decode(&found); err != nil {
			return err
		}
		return expect("n", found["n"], 9)
	})
	step("bulk", func() error {
		answer, err := people.BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": "b1", "region": "bulk", "n": 1}),
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": "b2", "region": "bulk", "n": 2}),
			mongo.NewUpdateOneModel().SetFilter(bson.M{"_id": "b1", "region": "bulk"}).SetUpdate(bson.M{"$inc": bson.M{"n": 10}}),
			mongo.NewReplaceOneModel().SetFilter(bson.M{"_id": "b3", "region": "bulk"}).SetReplacement(bson.M{"region": "bulk", "n": 3}).SetUpsert(true),
			mongo.NewDeleteOneModel().SetFilter(bson.M{"_id": "b2", "region": "bulk"}),
		})
		if err != nil {
			return err
		}
		return expect("counts", []any{answer.InsertedCount, answer.ModifiedCount, answer.UpsertedCount, answer.DeletedCount}, []int{2, 1, 1, 1})
	})
	step("bulk-unordered-continues", func() error {
		_, err := people.BulkWrite(ctx, []mongo.WriteModel{
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": "b1", "region": "bulk"}),
			mongo.NewInsertOneModel().SetDocument(bson.M{"_id": "b4", "region": "bulk"}),
		}, options.BulkWrite().SetOrdered(false))
		var failure mongo.BulkWriteException
		if !errors.As(err, &failure) {
			return fmt.Errorf("want a bulk exception, got %v", err)
		}
		if err := expect("failed", []any{len(failure.WriteErrors), failure.WriteErrors[0].Index, failure.WriteErrors[0].Code}, []int{1, 0, 11000}); err != nil {
			return err
		}
		return people.FindOne(ctx, bson.M{"_id": "b4", "region": "bulk"}).Err()
	})
	step("client-bulk-write", func() error {
		_, err := client.BulkWrite(ctx, []mongo.ClientBulkWrite{{Database: databaseName, Collection: "plain",
			Model: mongo.NewClientInsertOneModel().SetDocument(bson.M{"_id": 1})}})
		if err == nil {
			return nil
		}
		return missing{"the driver sends bulkWrite to MongoDB 8.0 and newer only: " + err.Error()}
	})
	step("delete-one", func() error {
		answer, err := people.DeleteOne(ctx, bson.M{"_id": "one", "region": "single"})
		if err != nil {
			return err
		}
		return expect("deleted", answer.DeletedCount, 1)
	})
	step("delete-many", func() error {
		answer, err := people.DeleteMany(ctx, bson.M{"region": "bulk"})
		if err != nil {
			return err
		}
		return expect("deleted", answer.DeletedCount, 3)
	})
	step("unicode-ids", func() error {
		id := "größe 数据 🌍 $.'"
		if _, err := people.InsertOne(ctx, bson.M{"_id": id, "region": id}); err != nil {
			return err
		}
		answer, err := people.DeleteOne(ctx, bson.M{"_id": id, "region": id})
		if err != nil {
			return err
		}
		return expect("deleted", answer.DeletedCount, 1)
	})
	step("all-types-round-trip", func() error {
		decimal, err := bson.ParseDecimal128("12345.678900000000000000000000001")
		if err != nil {
			return err
		}
		kinds := bson.D{{Key: "_id", Value: bson.ObjectID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}}, {Key: "region", Value: "types"},
			{Key: "double", Value: 1.5}, {Key: "int32", Value: int32(-3)}, {Key: "int64", Value: int64(1) << 60}, {Key: "decimal", Value: decimal},
			{Key: "date", Value: bson.NewDateTimeFromTime(time.UnixMilli(1234567890123))}, {Key: "binary", Value: bson.Binary{Subtype: 4, Data: make([]byte, 16)}},
			{Key: "regex", Value: bson.Regex{Pattern: "^a", Options: "i"}}, {Key: "timestamp", Value: bson.Timestamp{T: 5, I: 6}},
			{Key: "null", Value: nil}, {Key: "true", Value: true}, {Key: "code", Value: bson.JavaScript("1")}, {Key: "low", Value: bson.MinKey{}}, {Key: "high", Value: bson.MaxKey{}}}
		if _, err := people.InsertOne(ctx, kinds); err != nil {
			return err
		}
		raw, err := people.FindOne(ctx, bson.M{"region": "types"}).Raw()
		if err != nil {
			return err
		}
		want, err := bson.Marshal(kinds)
		if err != nil {
			return err
		}
		if _, err := people.DeleteMany(ctx, bson.M{"region": "types"}); err != nil {
			return err
		}
		return expect("bytes", []byte(raw), want)
	})
	step("large-document-refused", func() error {
		_, err := people.InsertOne(ctx, bson.M{"_id": "large", "region": "large", "content": make([]byte, 17*1024*1024)})
		if err == nil {
			return errors.New("a document of 17 MB was inserted")
		}
		return nil
	})
	step("unacknowledged-write", func() error {
		quiet := database.Collection("plain", options.Collection().SetWriteConcern(writeconcern.Unacknowledged()))
		if _, err := quiet.InsertOne(ctx, bson.M{"_id": "quiet"}); err != nil {
			return err
		}
		for range 10000 {
			if database.Collection("plain").FindOne(ctx, bson.M{"_id": "quiet"}).Err() == nil {
				return nil
			}
		}
		return errors.New("the document did not arrive")
	})
}

func deleteResources() {
	step("drop-collection", func() error {
		if err := people.Drop(ctx); err != nil {
			return err
		}
		count, err := people.CountDocuments(ctx, bson.M{})
		if err != nil {
			return err
		}
		return expect("count", count, 0)
	})
	step("drop-database", func() error {
		if err := database.Drop(ctx); err != nil {
			return err
		}
		names, err := client.ListDatabaseNames(ctx, bson.M{"name": databaseName})
		if err != nil {
			return err
		}
		return expect("names", len(names), 0)
	})
	step("disconnect", func() error { return client.Disconnect(ctx) })
}
