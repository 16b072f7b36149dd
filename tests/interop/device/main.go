// A device for bandits under local and shuffle, written from docs/foreign-clients and docs/wire-format alone.
//
//	device vectors FOLDER
//	device take-part SERVER SHUFFLER EXPERIMENT FOLDER PEOPLE BEST
//
// Each of PEOPLE is a device with a folder of its own; the reward is 1 with the arm BEST, and 0 with another.
package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const maxBytes = 16 << 20

// A device is one person's, with what it keeps in its folder.
type device struct{ server, shuffler, folder string }

func newClient() *http.Client {
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	return &http.Client{Timeout: 60 * time.Second, CheckRedirect: noRedirect, Transport: transport}
}

func (d device) get(path, accept string) (*http.Response, []byte) {
	request, err := http.NewRequest("GET", d.server+path, nil)
	require(err == nil, "server")
	request.Header.Set("Accept", accept)
	response, err := newClient().Do(request)
	require(err == nil, "unreachable")
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	require(err == nil && len(body) <= maxBytes && response.StatusCode == 200, "publication")
	require(strings.HasPrefix(response.Header.Get("Content-Type"), accept), "content-type")
	return response, body
}

// keep writes a file durably, in one step.
func (d device) keep(name string, body []byte) {
	path := filepath.Join(d.folder, name)
	file, err := os.Create(path + ".new")
	if err == nil {
		_, err = file.Write(body)
		err = errors.Join(err, file.Sync(), file.Close(), os.Rename(path+".new", path))
	}
	require(err == nil, "ledger")
}

func (d device) kept(name string) []byte {
	body, err := os.ReadFile(filepath.Join(d.folder, name))
	require(err == nil || errors.Is(err, os.ErrNotExist), "ledger")
	return body
}

// join fetches a publication and checks its signature, its parts and its place in the log.
func (d device) join(name string) (*publication, string) {
	response, body := d.get("/experiments/"+name+"/policy", "application/msgpack")
	signedKey, digits, _ := strings.Cut(response.Header.Get("Privateer-Signed"), ".")
	key, err := hex.DecodeString(signedKey)
	signature, signatureErr := hex.DecodeString(digits)
	require(err == nil && signatureErr == nil && len(key) == ed25519.PublicKeySize, "signature-invalid")
	if first := d.kept("key"); first != nil {
		require(bytes.Equal(first, key), "key-changed")
	}
	p := readPublication(body, name)
	signed := slices.Concat([]byte("privateer/publication/1\x00"), p.digest[:])
	require(ed25519.Verify(key, signed, signature), "signature-invalid")
	d.keep("key", key)
	d.follow(p, key)
	return p, response.Header.Get("Privateer-Asks")
}

// follow checks that the publication is in the log, which continues the last head, and keeps the new head.
func (d device) follow(p *publication, key ed25519.PublicKey) {
	query := url.Values{"experiment": {p.experiment}, "version": {strconv.FormatUint(p.version, 10)}}
	var last *logHead
	if signed := d.kept("head"); signed != nil {
		head := readHead(string(signed), key)
		last = &head
	}
	_, body := d.get("/log/proof?"+query.Encode(), "application/json")
	proof := readProof(body)
	block := nextBlock(proof, last, false)
	if block >= 0 {
		query.Set("block", strconv.FormatInt(block, 10))
		_, body = d.get("/log/proof?"+query.Encode(), "application/json")
		proof = readProof(body)
	}
	entry := encode([]any{p.experiment, p.version, p.digest[:]})
	checkProof(proof, entry, key, last, block >= 0)
	d.keep("head", []byte(proof.Head))
}

// takePart joins, chooses, pays and reports once; it returns the arm and the outcome.
func (d device) takePart(name, best string) (arm, outcome string) {
	p, asks := d.join(name)
	if d.kept("paid") != nil {
		return "", "already-reported"
	}
	if !p.asksForReport(asks) {
		return "", "not-asked"
	}
	p.checkTerms(defaults)
	slot := randomSlot()
	arm, reward := p.arms[p.arm(slot)], 0.0
	if arm == best {
		reward = 1
	}
	reportSlot := slot
	words := [3]uint64{randomWord(), randomWord(), randomWord()}
	if p.hasOwnCoins {
		reportSlot = randomSlot()
	}
	body := p.seal(p.makeReport(slot, reportSlot, reward, words))
	d.keep("paid", body) // before it is sent
	address := d.server + "/reports"
	if p.model == "shuffle" {
		address = d.shuffler + "/experiments/" + name + "/reports"
	}
	return arm, send(address, body)
}

var verdicts = []string{"duplicate-report", "round-closed", "malformed-report", "wrong-size", "wrong-key", "wrong-digest",
	"wrong-endpoint", "decryption-failed", "out-of-range", "too-large", "terms-refused", "spec-invalid", "deleted"}

// send sends the same bytes until an answer decides.
func send(address string, body []byte) string {
	for range 20 {
		response, err := newClient().Post(address, "application/msgpack", bytes.NewReader(body))
		pause := time.Second
		if err == nil {
			answer, _ := io.ReadAll(io.LimitReader(response.Body, maxBytes))
			response.Body.Close()
			if outcome := readAnswer(response.StatusCode, answer); outcome != "" {
				return outcome
			}
			if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil {
				pause = time.Duration(seconds) * time.Second
			}
		}
		time.Sleep(pause)
	}
	return "undecided"
}

// readAnswer returns the outcome, or "" if the answer decides nothing.
func readAnswer(status int, body []byte) string {
	var answer struct {
		Accepted int
		Refused  map[string]int
		Type     string
	}
	if json.Unmarshal(body, &answer) != nil {
		return ""
	}
	if status == 202 {
		for reason := range answer.Refused {
			return reason
		}
		return "accepted"
	}
	name := strings.TrimPrefix(answer.Type, "urn:privateer:problem:")
	if name == "duplicate-report" || name == "round-closed" || status < 500 && slices.Contains(verdicts, name) {
		return name
	}
	return ""
}

func main() {
	var result any
	err := attempt(func() {
		switch arguments := os.Args[1:]; {
		case len(arguments) == 2 && arguments[0] == "vectors":
			result = checkVectors(arguments[1])
		case len(arguments) == 7 && arguments[0] == "take-part":
			result = haveTakePart(arguments[1:])
		default:
			fmt.Fprintln(os.Stderr, "device vectors FOLDER | device take-part SERVER SHUFFLER EXPERIMENT FOLDER PEOPLE BEST")
			os.Exit(2)
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "refused:", err)
		os.Exit(1)
	}
	json.NewEncoder(os.Stdout).Encode(result)
}

func haveTakePart(arguments []string) map[string]map[string]int {
	people, err := strconv.Atoi(arguments[4])
	require(err == nil, "PEOPLE")
	counts := map[string]map[string]int{"arms": {}, "outcomes": {}}
	for person := range people {
		folder := filepath.Join(arguments[3], strconv.Itoa(person))
		require(os.MkdirAll(folder, 0o700) == nil, "ledger")
		arm, outcome := device{arguments[0], arguments[1], folder}.takePart(arguments[2], arguments[5])
		counts["arms"][arm]++
		counts["outcomes"][outcome]++
	}
	return counts
}
