package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func load(folder, name string, into any) {
	body, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		panic(err)
	}
	parse(body, into)
}

func parse(body []byte, into any) {
	if err := json.Unmarshal(body, into); err != nil {
		panic(err)
	}
}

func unhex(digits string) []byte {
	body, err := hex.DecodeString(digits)
	if err != nil {
		panic(err)
	}
	return body
}

func parseWord(digits string) uint64 {
	word, err := strconv.ParseUint(digits, 10, 64)
	if err != nil {
		panic(err)
	}
	return word
}

// checkVectors compares the device with the vectors of docs/wire, and returns how many of each file it has met.
func checkVectors(folder string) map[string]int {
	met := map[string]int{}
	expect := func(file string, holds bool, parts ...any) {
		if !holds {
			panic(fmt.Sprintln(append([]any{file}, parts...)...))
		}
		met[file]++
	}
	checkCoins(folder, expect)
	checkPublications(folder, expect)
	checkTermsVectors(folder, expect)
	checkLog(folder, expect)
	return met
}

type expectation func(file string, holds bool, parts ...any)

func checkCoins(folder string, expect expectation) {
	var coins []struct {
		Seed, Hash string
		Thresholds []uint64
		Key, Group int
		Slot       uint32
		Sign       int
		Buckets    map[uint64]uint64
	}
	load(folder, "coins.json", &coins)
	for _, c := range coins {
		if c.Hash == "" {
			continue
		}
		l := layout{parseWord(c.Seed), c.Key + 1, make([][]uint64, c.Key+1)}
		l.thresholds[c.Key] = c.Thresholds
		holds := fmt.Sprintf("%016x", l.hash(c.Slot, c.Key)) == c.Hash && l.group(c.Slot, c.Key) == c.Group
		holds = holds && l.sign(c.Slot, c.Key) == c.Sign
		for buckets, bucket := range c.Buckets {
			holds = holds && l.bucket(c.Slot, c.Key, buckets) == bucket
		}
		expect("coins", holds, c)
	}
	var responses []struct {
		Epsilon   float64
		Symbols   uint64
		Threshold string
	}
	load(folder, "response.json", &responses)
	for _, r := range responses {
		m := mechanism{epsilon: r.Epsilon, symbols: r.Symbols}
		expect("response", m.threshold().String() == r.Threshold, r)
	}
}

func checkPublications(folder string, expect expectation) {
	var publications []struct {
		Name, Publication, Info string
		People                  json.RawMessage
	}
	load(folder, "publications.json", &publications)
	for _, v := range publications {
		if !strings.HasPrefix(v.Name, "bandit") {
			continue
		}
		var people []struct {
			Slot       uint32
			ReportSlot uint32 `json:"report_slot"`
			Arm        string
			Reward     float64
			Words      [3]string
			Message    string
		}
		parse(v.People, &people)
		p := readPublication(unhex(v.Publication), "test")
		expect("publications", bytes.Equal(p.info(), unhex(v.Info)), v.Name)
		for _, person := range people {
			words := [3]uint64{}
			for i, word := range person.Words {
				words[i] = parseWord(word)
			}
			report := p.makeReport(person.Slot, person.ReportSlot, person.Reward, words)
			holds := hex.EncodeToString(report) == person.Message && p.arms[p.arm(person.Slot)] == person.Arm
			expect("publications", holds, v.Name, person)
		}
	}
}

func checkTermsVectors(folder string, expect expectation) {
	var terms []struct {
		Name, Publication string
		Refused           *string
		Field             string
		Limits            map[string]any
	}
	load(folder, "terms.json", &terms)
	for _, v := range terms {
		if !strings.HasPrefix(v.Name, "bandit") {
			continue
		}
		allowed := defaults
		for key, value := range v.Limits {
			switch key {
			case "arm_visibility":
				allowed.visibility = value.(string)
			case "epsilon":
				allowed.epsilon = value.(float64)
			default:
				panic(key)
			}
		}
		err := attempt(func() { readPublication(unhex(v.Publication), "test").checkTerms(allowed) })
		field := ""
		if err != nil {
			field = err.Error()
		}
		expect("terms", (err != nil) == (v.Refused != nil) && field == v.Field, v.Name, v.Field, err)
	}
}

func checkLog(folder string, expect expectation) {
	var log struct {
		Key    string
		Proofs []struct {
			Name, Entry string
			Last        *string
			Proof       json.RawMessage
			Block       *uint64
			Refused     *string
		}
	}
	load(folder, "log.json", &log)
	key := ed25519.PublicKey(unhex(log.Key))
	for _, v := range log.Proofs {
		err := attempt(func() {
			var last *logHead
			if v.Last != nil {
				head := readHead(*v.Last, key)
				last = &head
			}
			checkProof(readProof(v.Proof), unhex(v.Entry), key, last, v.Block != nil)
		})
		holds := (err == nil) == (v.Refused == nil) && (err == nil || err.Error() == *v.Refused)
		expect("log", holds, v.Name, err)
	}
}
