package main

import (
	"encoding/binary"
	"math"
)

// A refusal names the field because of which the device takes no part.
type refusal struct{ field string }

func (r refusal) Error() string { return r.field }

func refuse(field string) { panic(refusal{field}) }

func require(holds bool, field string) {
	if !holds {
		refuse(field)
	}
}

// attempt runs a step and returns its refusal, if it refuses.
func attempt(step func()) (err error) {
	defer func() {
		switch fault := recover().(type) {
		case nil:
		case refusal:
			err = fault
		default:
			panic(fault)
		}
	}()
	step()
	return nil
}

type reader struct{ rest []byte }

// decode returns nil, bool, uint64, int64, float64, string, []byte, []any or map[string]any.
func decode(body []byte) any {
	r := &reader{body}
	value := r.value()
	require(len(r.rest) == 0, "msgpack")
	return value
}

func (r *reader) take(n uint64) []byte {
	require(n <= uint64(len(r.rest)), "msgpack")
	taken := r.rest[:n]
	r.rest = r.rest[n:]
	return taken
}

func (r *reader) number(size int) uint64 {
	var padded [8]byte
	copy(padded[8-size:], r.take(uint64(size)))
	return binary.BigEndian.Uint64(padded[:])
}

func (r *reader) value() any {
	switch code := r.take(1)[0]; {
	case code < 0x80:
		return uint64(code)
	case code < 0x90:
		return r.mapping(uint64(code & 15))
	case code < 0xa0:
		return r.list(uint64(code & 15))
	case code < 0xc0:
		return string(r.take(uint64(code & 31)))
	case code == 0xc0:
		return nil
	case code == 0xc2, code == 0xc3:
		return code == 0xc3
	case code >= 0xc4 && code <= 0xc6:
		return r.take(r.number(1 << (code - 0xc4)))
	case code == 0xcb:
		return math.Float64frombits(r.number(8))
	case code >= 0xcc && code <= 0xcf:
		return r.number(1 << (code - 0xcc))
	case code >= 0xd0 && code <= 0xd3:
		size := 1 << (code - 0xd0)
		shift := 64 - 8*size
		return int64(r.number(size)<<shift) >> shift
	case code >= 0xd9 && code <= 0xdb:
		return string(r.take(r.number(1 << (code - 0xd9))))
	case code == 0xdc, code == 0xdd:
		return r.list(r.number(2 << (code - 0xdc)))
	case code == 0xde, code == 0xdf:
		return r.mapping(r.number(2 << (code - 0xde)))
	case code >= 0xe0:
		return int64(int8(code))
	}
	refuse("msgpack")
	return nil
}

func (r *reader) list(n uint64) []any {
	require(n <= uint64(len(r.rest)), "msgpack")
	values := make([]any, n)
	for i := range values {
		values[i] = r.value()
	}
	return values
}

func (r *reader) mapping(n uint64) map[string]any {
	require(n <= uint64(len(r.rest)), "msgpack")
	values := make(map[string]any, n)
	for range n {
		key, isText := r.value().(string)
		require(isText, "msgpack")
		values[key] = r.value()
	}
	return values
}

// encode writes lists of texts, bytes and numbers in the fewest bytes.
func encode(value any) []byte {
	switch v := value.(type) {
	case string:
		return append(head(uint64(len(v)), 0xa0, 31, 0xd9), v...)
	case []byte:
		return append(head(uint64(len(v)), 0, 0, 0xc4), v...)
	case uint64:
		if v < 128 {
			return []byte{byte(v)}
		}
		return head(v, 0, 0, 0xcc)
	case []any:
		body := []byte{0x90 | byte(len(v))}
		for _, part := range v {
			body = append(body, encode(part)...)
		}
		return body
	}
	panic("not to be written")
}

// head writes a number or length: in the code if it is at most small, otherwise in 1, 2, 4 or 8 bytes.
func head(n uint64, code byte, small uint64, long byte) []byte {
	if code != 0 && n <= small {
		return []byte{code | byte(n)}
	}
	for i, size := range []int{1, 2, 4, 8} {
		if size == 8 || n < 1<<(8*size) {
			var whole [8]byte
			binary.BigEndian.PutUint64(whole[:], n)
			return append([]byte{long + byte(i)}, whole[8-size:]...)
		}
	}
	panic("unreachable")
}
