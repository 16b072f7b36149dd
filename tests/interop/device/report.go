package main

import (
	"crypto/ecdh"
	"crypto/hpke"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"slices"
)

const golden = 0x9E3779B97F4A7C15

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
	z = (z ^ z>>27) * 0x94D049BB133111EB
	return z ^ z>>31
}

func (l layout) hash(slot uint32, key int) uint64 {
	return mix(mix((uint64(slot)+l.seed)*golden) ^ mix(uint64(key+1)*golden))
}

func (l layout) group(slot uint32, key int) int {
	low := l.hash(slot, key) & 0xFFFF
	group := 0
	for _, threshold := range l.thresholds[key] {
		if threshold <= low {
			group++
		}
	}
	return group
}

func (l layout) sign(slot uint32, key int) int {
	if l.hash(slot, key)>>63 == 1 {
		return -1
	}
	return 1
}

func middleBits(hash uint64) uint64 { return hash >> 24 & 0xFFFFFFFF }

func (l layout) bucket(slot uint32, key int, buckets uint64) uint64 {
	return middleBits(l.hash(slot, key)) * buckets >> 32
}

func publicClass(slot uint32, seed, n uint64) uint64 {
	w := mix(mix(uint64(slot)+seed) ^ 0xA24BAED4963EE407)
	return w >> 32 * n >> 32
}

// arm is that of the choice's coins.
func (p *publication) arm(slot uint32) int { return p.choice.group(slot, 0) }

// key is the one of a report about an arm; below 0 there is none.
func (p *publication) key(arm int) int {
	if !p.isArmInKey {
		return 0
	}
	place := 0
	for other := range arm {
		if p.choice.share(0, other) > 0 {
			place++
		}
	}
	if p.choice.share(0, arm) == 0 {
		return -1
	}
	return place
}

// truth is the symbol that a report would have without noise; below 0 there is none.
func (m mechanism) truth(l layout, slot uint32, key int, v float64, word uint64) int64 {
	u := float64(word>>11) / (1 << 53)
	isHigh := u < v
	agrees := func() int64 { // whether bit * sign > 0
		if isHigh == (l.sign(slot, key) > 0) {
			return 1
		}
		return 0
	}
	switch {
	case m.kind == "event-symbol":
		if key >= 0 && (isHigh || publicClass(slot, l.seed, 10) == 0) {
			return int64(key) + 1
		}
		return 0
	case key < 0 && m.kind == "signed-symbol" && m.hasElsewhere:
		return int64(2 * m.buckets)
	case key < 0:
		return -1
	case m.kind == "signed-symbol":
		return int64(2*l.bucket(slot, key, m.buckets)) + agrees()
	case m.buckets == uint64(l.keys):
		y := float64(m.levels-1) * v
		level := min(math.Floor(y), float64(m.levels-2))
		if u < y-level {
			level++
		}
		return int64(m.levels)*int64(key) + int64(level)
	}
	place := uint64(0)
	own := middleBits(l.hash(slot, key))
	for other := range l.keys {
		bits := middleBits(l.hash(slot, other))
		if bits < own || bits == own && other < key {
			place++
		}
	}
	return int64(2*(place%m.buckets)) + agrees()
}

func (m mechanism) randomize(truth int64, keep, uniform uint64) uint64 {
	if truth >= 0 && new(big.Int).SetUint64(keep).Cmp(m.threshold()) < 0 {
		return uint64(truth)
	}
	symbol, _ := bits.Mul64(uniform, m.symbols)
	return symbol
}

// makeReport returns the bytes of a report about a choice.
func (p *publication) makeReport(slot, reportSlot uint32, reward float64, words [3]uint64) []byte {
	truth := p.mechanism.truth(p.report, reportSlot, p.key(p.arm(slot)), p.scale(reward), words[0])
	symbol := p.mechanism.randomize(truth, words[1], words[2])
	var report []byte
	if p.tellsAge {
		report = binary.LittleEndian.AppendUint16(report, 0)
	}
	report = binary.LittleEndian.AppendUint32(report, reportSlot)
	return binary.LittleEndian.AppendUint16(report, uint16(symbol))
}

func (p *publication) header() []any {
	keyID := sha256.Sum256(p.publicKey)
	return []any{p.experiment, p.version, keyID[:8], p.digest[:]}
}

func (p *publication) info() []byte {
	return encode([]any{"privateer/report/1", p.model, p.header()})
}

// seal encrypts a report for its round, and returns the body of the upload.
func (p *publication) seal(report []byte) []byte {
	key, err := ecdh.X25519().NewPublicKey(p.publicKey)
	require(err == nil, "public_key")
	recipient, err := hpke.NewDHKEMPublicKey(key)
	require(err == nil, "public_key")
	plaintext := slices.Concat(random(16), report)
	sealed, err := hpke.Seal(recipient, hpke.HKDFSHA256(), hpke.AES128GCM(), p.info(), plaintext)
	require(err == nil && uint64(len(sealed)) == p.sealedSize, "sealed_size")
	return encode([]any{p.header(), sealed})
}

func random(n int) []byte {
	drawn := make([]byte, n)
	rand.Read(drawn) // ends the process if the operating system has none
	return drawn
}

func randomWord() uint64 { return binary.LittleEndian.Uint64(random(8)) }

func randomSlot() uint32 { return binary.LittleEndian.Uint32(random(4)) }
