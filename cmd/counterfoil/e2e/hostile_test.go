package e2e_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// reply is one answer on a connection.
type reply struct {
	status int
	header http.Header
	body   string
}

// spoken sends bytes on a connection of their own, and gives all answers until the gateway closes it or has nothing more to say.
func spoken(t *testing.T, url, text string) []reply {
	t.Helper()
	conn := dial(t, url)
	_ = conn.SetDeadline(time.Now().Add(patience))
	go func() {
		_, _ = io.WriteString(conn, text)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	var replies []reply
	in := bufio.NewReader(conn)
	for {
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			_ = conn.Close()
			return replies
		}
		body, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		replies = append(replies, reply{resp.StatusCode, resp.Header, string(body)})
	}
}

// TestHostileRequests: what is malformed as HTTP, hides one request in another, or repeats what there must be one of, does
// nothing, is stored nowhere, and is not answered as if it had been understood.
func TestHostileRequests(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x, y := s.newTenant(t, 100, anything()), s.newTenant(t, 100, anything())
	before := x.state(t)
	call := x.payout("k").body()
	length := "Content-Length: " + strconv.Itoa(len(call)) + "\r\n"
	chunk := fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(call), call)
	post := func(headers, body string) string {
		return "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + headers + "\r\n" + body
	}
	key := "X-API-Key: " + x.key + "\r\n"
	hidden := "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" + length + "\r\n" + call
	many := func(n int, line string) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, line, i)
		}
		return b.String()
	}
	for what, c := range map[string]struct {
		text   string
		status []int // of each answer
	}{
		"no credential behind a good one":    {post(key+"Content-Length: 0\r\n", "") + hidden, []int{400, 401}},
		"a length and chunks":                {post(key+"Transfer-Encoding: chunked\r\n"+fmt.Sprintf("Content-Length: %d\r\n", len(hidden)+5), "0\r\n\r\n"+hidden), []int{400, 401}},
		"chunks and a shorter length":        {post("X-API-Key: cf_nobody\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n", chunk), []int{401}},
		"two lengths":                        {post(key+length+"Content-Length: 0\r\n", call), []int{400}},
		"two lengths in one line":            {post(key+"Content-Length: 0, "+strconv.Itoa(len(call))+"\r\n", call), []int{400}},
		"a length with a sign":               {post(key+"Content-Length: +"+strconv.Itoa(len(call))+"\r\n", call), []int{400}},
		"a length that is negative":          {post(key+"Content-Length: -1\r\n", call), []int{400}},
		"a length without end":               {post(key+"Content-Length: 99999999999999999999999999\r\n", call), []int{400}},
		"a blank before the colon":           {post(key+"Transfer-Encoding : chunked\r\n", chunk), []int{400}},
		"an unknown transfer coding":         {post(key+"Transfer-Encoding: xchunked\r\n", chunk), []int{501}},
		"two transfer codings":               {post(key+"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunk), []int{501}},
		"a chunk of 2^64 bytes":              {post(key+"Transfer-Encoding: chunked\r\n", "ffffffffffffffff\r\n"+call), []int{400}},
		"a chunk that is no number":          {post(key+"Transfer-Encoding: chunked\r\n", "zz\r\n"+call), []int{400}},
		"a body that is cut":                 {post(key+length, call[:len(call)-1]), []int{400}},
		"a compressed body":                  {post(key+"Content-Encoding: gzip\r\nContent-Length: 4\r\n", "\x1f\x8b\x08\x00"), []int{400}},
		"a NUL in a header":                  {post(key+"Idempotency-Key: k\x00\r\n"+length, call), []int{400}},
		"a bare CR in a header":              {post(key+"Idempotency-Key: k\rX: y\r\n"+length, call), []int{400}},
		"a header without a name":            {post(key+": k\r\n"+length, call), []int{400}},
		"a header without a colon":           {post(key+"Idempotency-Key\r\n"+length, call), []int{400}},
		"two hosts":                          {strings.Replace(post(key+length, call), "Host: localhost", "Host: localhost\r\nHost: evil.example", 1), []int{400}},
		"no host":                            {strings.Replace(post(key+length, call), "Host: localhost\r\n", "", 1), []int{400}},
		"another host in the target":         {strings.Replace(post(key+length, call), "POST /mcp", "POST http://evil.example/mcp", 1), []int{403}},
		"another host":                       {strings.Replace(post(key+length, call), "localhost", "evil.example", 1), []int{403}},
		"two credentials of two agents":      {post(key+"X-API-Key: "+y.key+"\r\n"+length, call), []int{401}},
		"two credentials in two headers":     {post(key+"Authorization: Bearer "+y.key+"\r\n"+length, call), []int{401}},
		"two credentials in one line":        {post("X-API-Key: "+x.key+", "+y.key+"\r\n"+length, call), []int{401}},
		"an empty credential beside a good":  {post("X-API-Key:\r\n"+key+length, call), []int{401}},
		"a credential in the target":         {strings.Replace(post(length, call), "POST /mcp", "POST /mcp?X-API-Key="+x.key+"&api_key="+x.key, 1), []int{401}},
		"a credential in a trailer":          {post("Transfer-Encoding: chunked\r\nTrailer: X-API-Key\r\n", strings.TrimSuffix(chunk, "\r\n")+key+"\r\n"), []int{401}},
		"two origins":                        {post(key+"Origin: "+s.url+"\r\nOrigin: https://evil.example\r\n"+length, call), []int{403}},
		"40 KiB of headers":                  {post(key+many(1000, "X-Many-%d: "+strings.Repeat("v", 30)+"\r\n")+length, call), []int{431}},
		"one header of 1 MiB":                {post(key+"Idempotency-Key: "+strings.Repeat("k", 1<<20)+"\r\n"+length, call), []int{431}},
		"a header of a key that is too long": {post(key+"Idempotency-Key: "+strings.Repeat("k", 20_000)+"\r\n"+length, call), []int{200}},
		"two keys":                           {post(key+"Idempotency-Key: k\r\nIdempotency-Key: l\r\n"+length, call), []int{200}},
		"two keys in two spellings":          {post(key+"idempotency-key: k\r\nIDEMPOTENCY-KEY: l\r\n"+length, call), []int{200}},
		"two wallets":                        {post(key+"Counterfoil-Wallet: "+x.wallet+"\r\nCounterfoil-Wallet: "+y.wallet+"\r\n"+length, call), []int{200}},
		"a folded header":                    {post(key+"Idempotency-Key: k\r\n l\r\n"+length, call), []int{200}},
		"a key in Latin-1":                   {post(key+"Idempotency-Key: \xe9\r\n"+length, call), []int{200}},
		"the next version of HTTP":           {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{403}},
		"HTTP of another kind":               {"POST /mcp HTTP/3.7\r\nHost: localhost\r\n" + key + length + "\r\n" + call, []int{505}},
		"a tunnel":                           {"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n" + key + "\r\n", []int{403}},
		"another method":                     {strings.Replace(post(key+length, call), "POST", "post", 1), []int{405}},
		"a way around":                       {strings.Replace(post(key+length, call), "/mcp", "/mcp/../mcp", 1), []int{404}},
		"two slashes":                        {strings.Replace(post(key+length, call), "/mcp", "//mcp", 1), []int{404}},
		"an escaped slash":                   {strings.Replace(post(key+length, call), "/mcp", "/mcp%2fmessages", 1), []int{404}},
		"an escaped NUL":                     {strings.Replace(post(key+length, call), "/mcp", "/mcp%00", 1), []int{404}},
		"capitals":                           {strings.Replace(post(key+length, call), "/mcp", "/MCP", 1), []int{404}},
	} {
		got := spoken(t, s.url, c.text)
		for i, r := range got {
			if strings.Contains(r.body, `"counterfoil/outcome"`) || strings.Contains(r.body, `"internal"`) || r.status == 200 && !strings.Contains(r.body, `"error"`) {
				t.Errorf("%s: answer %d: %+v", what, i, r)
			}
		}
		if len(got) == 0 || fmt.Sprint(c.status) != fmt.Sprint(statuses(got)) {
			t.Errorf("%s: answered %v, want %v: %+v", what, statuses(got), c.status, got)
		}
	}
	unchanged(t, "after all", before, x.state(t))
	x.succeed(t, x.payout("k"))
}

func statuses(replies []reply) []int {
	out := make([]int, len(replies))
	for i, r := range replies {
		out[i] = r.status
	}
	return out
}

// TestHostileBodies: bodies made to be slow to read, or deep, or large, are refused within seconds, all at once, and leave
// nothing behind: no operation, no memory.
func TestHostileBodies(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	x := s.newTenant(t, 100, anything())
	before, rest := x.state(t), s.rest(t, s.url)
	const size = 1<<20 - 2000
	in := func(args string) string {
		c := x.payout("k")
		c.args = args
		return c.body()
	}
	names := func(twin string) string {
		var b strings.Builder
		for i := 0; b.Len() < size-100; i++ {
			fmt.Fprintf(&b, `"%x":1,`, i)
		}
		return "{" + b.String() + twin + "}"
	}
	deep := func(open, end string) string {
		n := size / (len(open) + len(end))
		return strings.Repeat(open, n) + "1" + strings.Repeat(end, n)
	}
	bodies := map[string]string{
		"lists without end":          strings.Repeat("[", size),
		"objects without end":        strings.Repeat(`{"a":`, size/5),
		"lists in arguments":         in(`{"a":` + deep("[", "]") + `}`),
		"objects in arguments":       in(deep(`{"a":`, "}")),
		"a twin behind many names":   in(names(`"0":1`)),
		"a twin in another case":     in(names(`"A":1,"a":2`)),
		"a number of a million":      in(`{"n":` + strings.Repeat("7", size) + `}`),
		"a fraction of a million":    in(`{"n":0.` + strings.Repeat("7", size) + `}`),
		"zeros of a million":         in(`{"n":1` + strings.Repeat("0", size) + `}`),
		"an exponent of a million":   in(`{"n":1e` + strings.Repeat("9", size) + `}`),
		"an exponent that underruns": in(`{"n":1e-999999999999}`),
		"an id of a million":         strings.Replace(x.payout("k").body(), `"id":1`, `"id":`+strings.Repeat("7", size), 1),
		"a string id of a million":   strings.Replace(x.payout("k").body(), `"id":1`, `"id":"`+strings.Repeat("x", size)+`"`, 1),
		"backslashes":                in(`{"a":"` + strings.Repeat(`\\`, size/2) + `\"}`),
		"surrogates that never pair": in(`{"a":"` + strings.Repeat(`\ud800`, size/6) + `"}`),
		"a key of a million":         strings.Replace(x.payout("k").body(), `"k"`, `"`+strings.Repeat("k", size)+`"`, 1),
		"a wallet of a million":      strings.Replace(x.payout("k").body(), x.wallet, strings.Repeat("w", size), 1),
		"a permit of a million":      strings.Replace(x.payout("k").body(), x.permit, strings.Repeat("p", size), 1),
		"a tool of a million":        strings.Replace(x.payout("k").body(), "payout", strings.Repeat("t", size), 1),
		"a method of a million":      strings.Replace(x.payout("k").body(), "tools/call", strings.Repeat("m", size), 1),
		"ids of identity, a million": in(strings.Replace(names(`"z":{"wallet_id":1}`), `"0":1,`, "", 1)),
		"nothing but blanks":         strings.Repeat(" ", size),
		"blanks around":              strings.Repeat("\n", size-500) + x.payout("k").body() + "x",
	}
	type one struct{ what, body string }
	var all []one
	for what, body := range bodies {
		all = append(all, one{what, body}, one{what, body}) // twice each, together
	}
	began := time.Now()
	answers := s.together(t, len(all), func(i int) (answer, error) {
		return s.send(context.Background(), s.raw, s.url+"/mcp", x.key, all[i].body)
	})
	took := time.Since(began)
	for i, a := range answers {
		if a.refusal == nil || a.result != nil || a.reason() == "internal" || len(a.body) > 4096 {
			t.Errorf("%s: %s", all[i].what, a)
		}
	}
	t.Logf("%d bodies of 1 MiB took %v", len(all), took)
	if took > patience {
		t.Errorf("%d hostile bodies took %v", len(all), took)
	}
	unchanged(t, "after all", before, x.state(t))
	s.restored(t, s.url, rest)
	x.succeed(t, x.payout("k"))
}

// TestGarbledCalls: good calls of both eras with a few bytes changed at random are refused, or are calls; never anything
// between. What acted was answered as having acted, charged once, and is answered so again.
func TestGarbledCalls(t *testing.T) {
	t.Parallel()
	r := newRounds(t, 1)
	rng, _ := r.next(t)
	s := newSystem(t)
	x := s.newTenant(t, 1_000_000, anything())
	const calls, atOnce = 600, 60
	type garbled struct {
		body    string
		headers []string
	}
	var all []garbled
	for i := range calls {
		body, headers := dialect{modern: i%2 == 0, meta: `,"traceparent":"00-1"`}.say(x.payout(fmt.Sprintf("key-%016x", rng.Uint64())))
		bytes := []byte(body)
		for range 1 + rng.IntN(3) {
			at := rng.IntN(len(bytes))
			switch rng.IntN(4) {
			case 0:
				bytes[at] = byte(rng.IntN(256))
			case 1:
				bytes[at] ^= 1 << rng.IntN(8)
			case 2:
				bytes = append(bytes[:at], bytes[min(at+1+rng.IntN(4), len(bytes)):]...)
			default:
				to := rng.IntN(len(bytes))
				bytes = append(bytes[:at:at], append([]byte(string(bytes[min(at, to):max(at, to)])), bytes[at:]...)...)
			}
			if len(bytes) == 0 {
				bytes = []byte("{")
			}
		}
		all = append(all, garbled{string(bytes), headers})
	}
	var first, again []answer
	for some := range slices.Chunk(all, atOnce) {
		try := func(i int) (answer, error) {
			return s.send(context.Background(), s.raw, s.url+"/mcp", x.key, some[i].body, some[i].headers...)
		}
		first, again = append(first, s.together(t, len(some), try)...), append(again, s.together(t, len(some), try)...)
	}
	acted, governed := 0, 0
	for i, a := range first {
		b := again[i]
		switch {
		case a.meta.Outcome != "":
			governed++
			if !a.replayed() && a.meta.Outcome == "succeeded" {
				acted++
			}
			if string(a.result) != string(b.result) || !b.replayed() {
				t.Errorf("%q: %s\nand again: %s", all[i].body, a, b)
			}
		case a.status == http.StatusAccepted && len(a.body) == 0: // its id was hit: a notification
		case a.refusal == nil || a.reason() == "internal" || a.reason() == "" || a.refusal.Data.Retry == "":
			t.Errorf("%q: %s", all[i].body, a)
		case b.refusal == nil || b.reason() != a.reason():
			t.Errorf("%q: %s\nand again: %s", all[i].body, a, b)
		}
	}
	st := x.state(t)
	if st.Operations != governed || st.Charges != acted || st.Receipts != governed || st.Held != 0 || len(s.tool.effects(t, "")) != acted {
		t.Errorf("%d acted, %d are recorded: %+v", acted, governed, st)
	}
	if strings.Contains(s.first.logged(), "panicked") {
		t.Error("a request panicked")
	}
	t.Logf("of %d calls %d are recorded, %d acted", calls, governed, acted)
	if governed == 0 || governed == calls {
		t.Errorf("%d of %d calls are recorded", governed, calls)
	}
}
