package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// missing and differs are the outcomes of a step besides success and failure.
type missing struct{ why string }
type differs struct{ why string }

func (m missing) Error() string { return m.why }
func (d differs) Error() string { return d.why }

// step runs one named check and prints its outcome. A failure does not end the program.
func step(name string, run func() error) {
	err := func() (err error) {
		defer func() {
			if caught := recover(); caught != nil {
				err = fmt.Errorf("panic: %v", caught)
			}
		}()
		return run()
	}()
	var absent missing
	var different differs
	switch {
	case err == nil:
		fmt.Printf("ok %s\n", name)
	case errors.As(err, &absent):
		fmt.Printf("missing %s: %s\n", name, absent.why)
	case errors.As(err, &different):
		fmt.Printf("differs %s: %s\n", name, different.why)
	default:
		fmt.Printf("failed %s: %s\n", name, strings.Join(strings.Fields(err.Error()), " "))
	}
}

// expect compares by JSON text, in which maps have sorted keys.
func expect(what string, got, want any) error {
	gotText, _ := json.Marshal(got)
	wantText, _ := json.Marshal(want)
	if !bytes.Equal(gotText, wantText) {
		return fmt.Errorf("%s: got %s, want %s", what, gotText, wantText)
	}
	return nil
}

// control sends a request to the server's control API: splits, fault rules, the clock, scripts.
func control(method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequest(method, os.Getenv("ARMILLARY_CONTROL")+path, content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("ARMILLARY_CONTROL_KEY"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("control %s %s: %d %s", method, path, response.StatusCode, text)
	}
	if answer != nil {
		return json.Unmarshal(text, answer)
	}
	return nil
}

// splitPartition splits the largest partition of a container and returns when the split is done.
func splitPartition(database, container string) error {
	path := "/databases/" + database + "/containers/" + container
	if err := control("POST", path+"/split", map[string]any{}, nil); err != nil {
		return err
	}
	for range 10000 {
		var running struct {
			Reshapes []map[string]any `json:"reshapes"`
		}
		if err := control("GET", path+"/reshapes", nil, &running); err != nil {
			return err
		}
		if len(running.Reshapes) == 0 {
			return nil
		}
	}
	return errors.New("the split did not end")
}
