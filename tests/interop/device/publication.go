package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
)

// A publication is what a server says to everybody about one round (docs/wire-format.md).
type publication struct {
	experiment, model                               string
	version, batchSize, sealedSize                  uint64
	publicKey                                       []byte
	digest                                          [32]byte
	arms                                            []string
	low, high, fallback                             float64
	epsilon, delta, honestFraction, localEpsilonMax float64
	minBatch, reports                               uint64
	visibility                                      string
	isDraining                                      bool
	terms                                           map[string]any
	choice, report                                  layout
	mechanism                                       mechanism
	hasOwnCoins, isArmInKey, tellsAge               bool
	playable                                        []int
	policy                                          map[string]any
}

func section(values map[string]any, name string) map[string]any {
	part, isMap := values[name].(map[string]any)
	require(isMap, name)
	return part
}

// isNothing tells whether a key of the spec is missing, nil, 0 or empty.
func isNothing(value any) bool {
	list, isList := value.([]any)
	return value == nil || value == 0.0 || isList && len(list) == 0
}

func number(values map[string]any, name string) float64 {
	switch v := values[name].(type) {
	case float64:
		return v
	case uint64:
		return float64(v)
	}
	refuse(name)
	return 0
}

func whole(value any, name string) uint64 {
	n, isWhole := value.(uint64)
	require(isWhole, name)
	return n
}

func text(values map[string]any, name string) string {
	value, isText := values[name].(string)
	require(isText, name)
	return value
}

func texts(value any, name string) []string {
	list, isList := value.([]any)
	require(isList, name)
	names := make([]string, len(list))
	for i, part := range list {
		name, isText := part.(string)
		require(isText, name)
		names[i] = name
	}
	return names
}

// readPublication decodes a publication and checks that its parts agree; the policy and the terms come later.
func readPublication(body []byte, name string) *publication {
	parts, isList := decode(body).([]any)
	require(isList && len(parts) >= 3 && len(parts) <= 5, "publication")
	round, isList := parts[0].([]any)
	require(isList && len(round) >= 6 && len(round) <= 10, "round")
	for _, missing := range []uint64{1, 0, 0, 1}[len(round)-6:] {
		round = append(round, missing)
	}
	p := &publication{digest: sha256.Sum256(body)}
	p.experiment, _ = round[0].(string)
	p.model, _ = round[2].(string)
	p.version, p.batchSize = whole(round[1], "version"), whole(round[3], "batch_size")
	p.sealedSize = whole(round[4], "sealed_size")
	p.publicKey, _ = round[5].([]byte)
	p.isDraining = len(parts) == 5 && parts[4] != nil
	require(len(p.publicKey) == 32, "public_key")
	require(p.version >= 1, "version")
	require(whole(round[6], "messages") == 1, "messages")
	require(whole(round[8], "deadline") == 0, "deadline")
	require(whole(round[9], "groups") == 1, "groups")
	p.readSpec(parts[1])
	require(p.experiment == name, "experiment")
	policyBytes, isBytes := parts[2].([]byte)
	require(isBytes, "policy")
	policy, isMap := decode(policyBytes).(map[string]any)
	require(isMap, "policy")
	p.policy = policy
	require(whole(policy["version"], "version") == p.version, "version")
	terms, isMap := policy["terms"].(map[string]any)
	require(isMap, "terms")
	p.terms = terms
	require(text(terms, "model") == p.model, "model")
	require(whole(terms["batch_size"], "batch_size") == p.batchSize, "batch_size")
	p.checkPolicy()
	size := uint64(64 + 6)
	if p.tellsAge {
		size += 2
	}
	require(p.sealedSize == size, "sealed_size")
	return p
}

func (p *publication) readSpec(body any) {
	raw, isBytes := body.([]byte)
	require(isBytes, "spec")
	var values map[string]any
	require(json.Unmarshal(raw, &values) == nil, "spec")
	experiment, reward := section(values, "experiment"), section(values, "reward")
	privacy, algorithm := section(values, "privacy"), section(values, "algorithm")
	require(text(algorithm, "name") == "bandit", "algorithm.name")
	require(text(experiment, "name") == p.experiment, "experiment")
	require(text(privacy, "model") == p.model, "model")
	require(p.model == "local" || p.model == "shuffle", "model")
	for _, key := range []string{"conversion_window_seconds", "evaluation_fraction"} { // this device does not know them
		require(isNothing(experiment[key]), key)
	}
	require(isNothing(reward["covariates"]), "covariates")
	require(isNothing(values["sources"]) && isNothing(values["context"]), "context")
	p.arms = texts(experiment["arms"], "experiment.arms")
	retired := texts(experiment["retired_arms"], "experiment.retired_arms")
	for i, arm := range p.arms {
		if !slices.Contains(retired, arm) {
			p.playable = append(p.playable, i)
		}
	}
	p.reports = uint64(number(experiment, "reports_per_person"))
	p.low, p.high = number(reward, "low"), number(reward, "high")
	p.fallback = max(0, p.low)
	if reward["default"] != nil {
		p.fallback = number(reward, "default")
	}
	p.epsilon, p.delta = number(privacy, "epsilon"), number(privacy, "delta")
	p.honestFraction, p.localEpsilonMax = number(privacy, "honest_fraction"), number(privacy, "local_epsilon_max")
	p.minBatch, p.visibility = uint64(number(privacy, "min_batch")), text(privacy, "arm_visibility")
}

// A layout says what coins mean: the group of coins at a key is the number of thresholds at or below their hash.
type layout struct {
	seed       uint64
	keys       int
	thresholds [][]uint64
}

func readLayout(value any) layout {
	values, isMap := value.(map[string]any)
	require(isMap && len(values) == 2, "layout")
	array, isList := values["thresholds"].([]any)
	require(isList && len(array) == 3 && array[0] == "<u4", "thresholds")
	shape, isList := array[1].([]any)
	require(isList && len(shape) == 2, "thresholds")
	rows, columns := whole(shape[0], "thresholds"), whole(shape[1], "thresholds")
	body, isBytes := array[2].([]byte)
	require(isBytes && rows < 1<<20 && columns < 1<<20 && uint64(len(body)) == 4*rows*columns, "thresholds")
	l := layout{seed: whole(values["seed"], "seed"), keys: int(rows)}
	for range rows {
		row := make([]uint64, columns)
		for i := range row {
			row[i] = uint64(binary.LittleEndian.Uint32(body))
			body = body[4:]
		}
		require(slices.IsSorted(row) && (columns == 0 || row[columns-1] <= 1<<16), "thresholds")
		l.thresholds = append(l.thresholds, row)
	}
	return l
}

func (l layout) share(key, group int) uint64 {
	row := l.thresholds[key]
	start, end := uint64(0), uint64(1<<16)
	if group > 0 {
		start = row[group-1]
	}
	if group < len(row) {
		end = row[group]
	}
	return end - start
}

// checkPolicy reads and checks a bandit's policy.
func (p *publication) checkPolicy() {
	for key := range p.policy {
		require(slices.Contains([]string{"version", "terms", "choice"}, key), key)
	}
	require(p.visibility == "visible" || p.visibility == "hidden" || p.visibility == "as-local", "arm_visibility")
	if p.batchSize == 0 {
		return
	}
	p.mechanism, p.report = readMechanism(p.terms["mechanism"])
	p.isArmInKey = p.model == "shuffle" && p.visibility == "visible"
	require((p.policy["choice"] != nil) == p.isArmInKey, "choice")
	p.choice, p.hasOwnCoins = p.report, p.isArmInKey
	if p.isArmInKey {
		p.choice = readLayout(p.policy["choice"])
	}
	require(p.choice.keys == 1 && len(p.choice.thresholds[0]) == len(p.arms)-1, "thresholds")
	n := 0
	for arm := range p.arms {
		share := p.choice.share(0, arm)
		require(share == 0 || slices.Contains(p.playable, arm), "retired_arms")
		if share > 0 {
			n++
		}
	}
	if p.isArmInKey {
		require(p.report.keys == n && len(p.report.thresholds[0]) == 0, "layout")
	}
	p.tellsAge = !p.hasOwnCoins && p.model != "shuffle"
}

// asksForReport tells whether the round asks this person, who has not reported.
func (p *publication) asksForReport(header string) bool {
	return p.batchSize > 0 && !p.isDraining && header != "nobody"
}

// scale maps a reward to [0, 1].
func (p *publication) scale(reward float64) float64 {
	if math.IsNaN(reward) {
		reward = p.fallback
	}
	return min(1, max(0, (reward-p.low)/(p.high-p.low)))
}
