package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

func sessions() {
	accounts := database.Collection("accounts")
	step("retryable-write-applied-once", func() error {
		if _, err := accounts.InsertOne(ctx, bson.M{"_id": "a", "balance": 100}); err != nil {
			return err
		}
		rule := map[string]any{"operations": "write", "database": databaseName, "container": "accounts", "count": 1, "drop": true, "after": true}
		if err := control("POST", "/faults", rule, nil); err != nil {
			return err
		}
		_, err := accounts.UpdateOne(ctx, bson.M{"_id": "a"}, bson.M{"$inc": bson.M{"balance": 1}})
		if stop := control("DELETE", "/faults", nil, nil); stop != nil {
			return stop
		}
		if err != nil {
			return err
		}
		var found bson.M
		if err := accounts.FindOne(ctx, bson.M{"_id": "a"}).Decode(&found); err != nil {
			return err
		}
		return expect("balance", found["balance"], 101)
	})
	step("retryable-read", func() error {
		rule := map[string]any{"operations": "query", "database": databaseName, "container": "accounts", "count": 1, "drop": true}
		if err := control("POST", "/faults", rule, nil); err != nil {
			return err
		}
		cursor, err := accounts.Find(ctx, bson.M{"balance": bson.M{"$gt": 0}})
		values, err := column(cursor, err, "_id")
		if stop := control("DELETE", "/faults", nil, nil); stop != nil {
			return stop
		}
		if err != nil {
			return err
		}
		return expect("ids", values, []string{"a"})
	})
	step("session-read-own-write", func() error {
		return client.UseSession(ctx, func(inside context.Context) error {
			if _, err := accounts.InsertOne(inside, bson.M{"_id": "b", "balance": 0}); err != nil {
				return err
			}
			return accounts.FindOne(inside, bson.M{"_id": "b"}).Err()
		})
	})
	step("transaction-commits", func() error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(inside context.Context) (any, error) {
			if _, err := accounts.UpdateOne(inside, bson.M{"_id": "a"}, bson.M{"$inc": bson.M{"balance": -40}}); err != nil {
				return nil, err
			}
			return accounts.UpdateOne(inside, bson.M{"_id": "b"}, bson.M{"$inc": bson.M{"balance": 40}})
		})
		if err != nil {
			return err
		}
		cursor, err := accounts.Find(ctx, bson.M{}, options.Find().SetSort(bson.M{"_id": 1}))
		values, err := column(cursor, err, "balance")
		if err != nil {
			return err
		}
		return expect("balances", values, []int{61, 40})
	})
	step("transaction-over-two-collections", func() error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		_, err = session.WithTransaction(ctx, func(inside context.Context) (any, error) {
			if _, err := accounts.InsertOne(inside, bson.M{"_id": "c", "balance": 1}); err != nil {
				return nil, err
			}
			return database.Collection("plain").InsertOne(inside, bson.M{"_id": "audit"})
		})
		if err != nil {
			return err
		}
		return database.Collection("plain").FindOne(ctx, bson.M{"_id": "audit"}).Err()
	})
	step("transaction-aborts", func() error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		inside := mongo.NewSessionContext(ctx, session)
		if err := session.StartTransaction(); err != nil {
			return err
		}
		if _, err := accounts.DeleteOne(inside, bson.M{"_id": "a"}); err != nil {
			return err
		}
		if err := expect("outside", accounts.FindOne(ctx, bson.M{"_id": "a"}).Err(), nil); err != nil {
			return err
		}
		if err := session.AbortTransaction(ctx); err != nil {
			return err
		}
		return accounts.FindOne(ctx, bson.M{"_id": "a"}).Err()
	})
	step("transaction-write-conflict", func() error {
		session, err := client.StartSession()
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		inside := mongo.NewSessionContext(ctx, session)
		if err := session.StartTransaction(); err != nil {
			return err
		}
		if err := accounts.FindOne(inside, bson.M{"_id": "a"}).Err(); err != nil {
			return err
		}
		if _, err := accounts.UpdateOne(ctx, bson.M{"_id": "a"}, bson.M{"$inc": bson.M{"balance": 1}}); err != nil {
			return err
		}
		_, err = accounts.UpdateOne(inside, bson.M{"_id": "a"}, bson.M{"$inc": bson.M{"balance": 1}})
		if err == nil {
			err = session.CommitTransaction(ctx)
		}
		var labelled mongo.LabeledError
		if !errors.As(err, &labelled) || !labelled.HasErrorLabel("TransientTransactionError") {
			return fmt.Errorf("want a transient error, got %v", err)
		}
		return expectCode(err, 112)
	})
	step("snapshot-session", func() error {
		session, err := client.StartSession(options.Session().SetSnapshot(true))
		if err != nil {
			return err
		}
		defer session.EndSession(ctx)
		inside := mongo.NewSessionContext(ctx, session)
		var before, after bson.M
		if err := accounts.FindOne(inside, bson.M{"_id": "b"}).Decode(&before); err != nil {
			return err
		}
		if _, err := accounts.UpdateOne(ctx, bson.M{"_id": "b"}, bson.M{"$inc": bson.M{"balance": 5}}); err != nil {
			return err
		}
		if err := accounts.FindOne(inside, bson.M{"_id": "b"}).Decode(&after); err != nil {
			return err
		}
		return expect("balance", after["balance"], before["balance"])
	})
}

// event waits for the next change of a stream.
func event(stream *mongo.ChangeStream) (bson.M, error) {
	waiting, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	if !stream.Next(waiting) {
		return nil, fmt.Errorf("no change: %v", stream.Err())
	}
	var change bson.M
	err := stream.Decode(&change)
	return change, err
}

func streams() {
	orders := database.Collection("orders")
	var token bson.Raw
	step("change-stream", func() error {
		if _, err := orders.InsertOne(ctx, bson.M{"_id": 0}); err != nil {
			return err
		}
		stream, err := orders.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetFullDocument(options.UpdateLookup))
		if err != nil {
			return err
		}
		defer stream.Close(ctx)
		if _, err := orders.InsertOne(ctx, bson.M{"_id": 1, "state": "new"}); err != nil {
			return err
		}
		if _, err := orders.UpdateOne(ctx, bson.M{"_id": 1}, bson.M{"$set": bson.M{"state": "paid"}}); err != nil {
			return err
		}
		if _, err := orders.DeleteOne(ctx, bson.M{"_id": 1}); err != nil {
			return err
		}
		kinds := []any{}
		for range 3 {
			change, err := event(stream)
			if err != nil {
				return err
			}
			kinds = append(kinds, change["operationType"])
			if len(kinds) == 1 {
				token = stream.ResumeToken()
			}
		}
		return expect("kinds", kinds, []string{"insert", "update", "delete"})
	})
	step("change-stream-resumed", func() error {
		stream, err := orders.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetResumeAfter(token))
		if err != nil {
			return err
		}
		defer stream.Close(ctx)
		change, err := event(stream)
		if err != nil {
			return err
		}
		return expect("kind", change["operationType"], "update")
	})
	step("change-stream-filtered", func() error {
		stream, err := database.Watch(ctx, mongo.Pipeline{stage("$match", bson.M{"fullDocument.wanted": true})})
		if err != nil {
			return err
		}
		defer stream.Close(ctx)
		if _, err := orders.InsertMany(ctx, []any{bson.M{"_id": 2}, bson.M{"_id": 3, "wanted": true}}); err != nil {
			return err
		}
		change, err := event(stream)
		if err != nil {
			return err
		}
		return expect("key", change["documentKey"], bson.M{"_id": 3})
	})
	step("change-stream-nothing-new", func() error {
		stream, err := orders.Watch(ctx, mongo.Pipeline{}, options.ChangeStream().SetMaxAwaitTime(10*time.Millisecond))
		if err != nil {
			return err
		}
		defer stream.Close(ctx)
		return expect("change", []any{stream.TryNext(ctx), stream.Err()}, []any{false, nil})
	})
	step("tailable-cursor", func() error {
		if err := database.CreateCollection(ctx, "log", options.CreateCollection().SetCapped(true).SetSizeInBytes(65536)); err != nil {
			return err
		}
		if _, err := database.Collection("log").InsertMany(ctx, []any{bson.M{"_id": 1}, bson.M{"_id": 2}}); err != nil {
			return err
		}
		cursor, err := database.Collection("log").Find(ctx, bson.M{}, options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(10*time.Millisecond))
		if err != nil {
			return err
		}
		defer cursor.Close(ctx)
		count := 0
		for cursor.TryNext(ctx) {
			count++
		}
		if _, err := database.Collection("log").InsertOne(ctx, bson.M{"_id": 3}); err != nil {
			return err
		}
		if !cursor.Next(ctx) {
			return cursor.Err()
		}
		return expect("count", []any{count, cursor.Current.Lookup("_id").AsInt64()}, []int{2, 3})
	})
}

func files() {
	bucket := database.GridFSBucket()
	content := bytes.Repeat([]byte("0123456789abcdef"), 40000)
	var id bson.ObjectID
	step("gridfs-upload", func() error {
		var err error
		id, err = bucket.UploadFromStream(ctx, "file", bytes.NewReader(content), options.GridFSUpload().SetMetadata(bson.M{"kind": "test"}))
		return err
	})
	step("gridfs-download", func() error {
		stream, err := bucket.OpenDownloadStreamByName(ctx, "file")
		if err != nil {
			return err
		}
		got, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		return expect("equal", bytes.Equal(got, content), true)
	})
	step("gridfs-find-rename-delete", func() error {
		if err := bucket.Rename(ctx, id, "renamed"); err != nil {
			return err
		}
		cursor, err := bucket.Find(ctx, bson.M{"filename": "renamed"})
		values, err := column(cursor, err, "length")
		if err != nil {
			return err
		}
		if err := expect("lengths", values, []int{640000}); err != nil {
			return err
		}
		if err := bucket.Delete(ctx, id); err != nil {
			return err
		}
		count, err := bucket.GetChunksCollection().CountDocuments(ctx, bson.M{})
		if err != nil {
			return err
		}
		return expect("chunks", count, 0)
	})
}
