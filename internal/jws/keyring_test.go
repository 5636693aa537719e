package jws_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"counterfoil/internal/jws"

	"github.com/google/go-cmp/cmp"
)

var allPurposes = []jws.Purpose{jws.PurposeReceipt, jws.PurposePermit, jws.PurposeCheckpoint}

func newKeyring(t *testing.T) (*jws.Keyring, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "keys")
	k, made, err := jws.CreateMissing(dir, time.Unix(1000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(allPurposes) {
		t.Fatalf("made %d keys", len(made))
	}
	return k, dir
}

func active(t *testing.T, k *jws.Keyring, p jws.Purpose) jws.Signer {
	t.Helper()
	s, err := k.Active(p)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func privatePath(dir string, p jws.Purpose, kid string) string {
	return filepath.Join(dir, string(p)+"-"+kid+".pem")
}

func TestCreateMissingReplacesNothing(t *testing.T) {
	t.Parallel()
	first, dir := newKeyring(t)
	second, made, err := jws.CreateMissing(dir, time.Unix(2000, 0))
	if err != nil || len(made) != 0 {
		t.Fatalf("made %d, %v", len(made), err)
	}
	if diff := cmp.Diff(first.Public().Keys(), second.Public().Keys()); diff != "" {
		t.Error(diff)
	}
	for _, p := range allPurposes {
		if active(t, first, p).KeyID() != active(t, second, p).KeyID() {
			t.Errorf("%s: another key", p)
		}
	}
	for _, k := range first.Public().Keys() {
		if k.Status != jws.StatusActive || k.NotBefore != 1000 || k.Expires != 0 {
			t.Errorf("%+v", k)
		}
	}
}

func TestKeyFilesAreTheOwnersOnly(t *testing.T) {
	t.Parallel()
	_, dir := newKeyring(t)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v, %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 4 {
		t.Fatalf("%d files, %v", len(entries), err)
	}
	for _, e := range entries {
		info, err := e.Info()
		want := fs.FileMode(0o600)
		if e.Name() == "keys.json" {
			want = 0o644
		}
		if err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v", e.Name(), info.Mode(), err)
		}
	}
	list, err := os.ReadFile(filepath.Join(dir, "keys.json"))
	if err != nil {
		t.Fatal(err)
	}
	if set, err := jws.ParseJWKS(list); err != nil || len(set.Keys()) != 3 {
		t.Errorf("keys.json must serve as a trust file: %v", err)
	}
}

func TestRotate(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	old := active(t, k, jws.PurposeReceipt)
	next, err := k.AddNext(jws.PurposeReceipt, time.Unix(2000, 0))
	if err != nil || next.Status != jws.StatusNext || next.NotBefore != 0 {
		t.Fatalf("%+v, %v", next, err)
	}
	if again, err := k.AddNext(jws.PurposeReceipt, time.Unix(2500, 0)); err != nil || again.ID != next.ID {
		t.Errorf("a second next key: %+v, %v", again, err)
	}
	if active(t, k, jws.PurposeReceipt).KeyID() != old.KeyID() {
		t.Error("the next key must not sign yet")
	}
	got, err := k.Rotate(jws.PurposeReceipt, time.Unix(3000, 0))
	if err != nil || got.ID != next.ID || got.Status != jws.StatusActive || got.NotBefore != 3000 {
		t.Fatalf("%+v, %v", got, err)
	}
	third, err := k.Rotate(jws.PurposeReceipt, time.Unix(4000, 0))
	if err != nil || third.ID == next.ID || third.ID == old.KeyID() {
		t.Fatalf("%+v, %v", third, err)
	}
	reopened, err := jws.OpenKeyring(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]jws.Key{
		old.KeyID(): {Status: jws.StatusRetired, NotBefore: 1000, Expires: 3000},
		next.ID:     {Status: jws.StatusRetired, NotBefore: 3000, Expires: 4000},
		third.ID:    {Status: jws.StatusActive, NotBefore: 4000},
	}
	for kid, w := range want {
		got, ok := reopened.Public().Find(kid, jws.PurposeReceipt)
		if !ok || got.Status != w.Status || got.NotBefore != w.NotBefore || got.Expires != w.Expires {
			t.Errorf("%+v, want %+v", got, w)
		}
		if s, ok := reopened.Signer(kid); !ok || s.KeyID() != kid {
			t.Errorf("private key of %s must stay, to drain", kid)
		}
	}
	if _, err := k.Rotate("", time.Unix(5000, 0)); !errors.Is(err, jws.ErrKey) {
		t.Errorf("no purpose: %v", err)
	}
}

func TestAnotherProcessSeesRotationAfterReload(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	other, err := jws.OpenKeyring(dir)
	if err != nil {
		t.Fatal(err)
	}
	rotated, err := other.Rotate(jws.PurposePermit, time.Unix(2000, 0))
	if err != nil {
		t.Fatal(err)
	}
	if active(t, k, jws.PurposePermit).KeyID() == rotated.ID {
		t.Error("seen before Reload")
	}
	if err := k.Reload(); err != nil || active(t, k, jws.PurposePermit).KeyID() != rotated.ID {
		t.Errorf("not seen after Reload: %v", err)
	}
}

func TestKeyringRefuses(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(t *testing.T, dir, private string){
		"group may read":    func(t *testing.T, _, private string) { must(t, os.Chmod(private, 0o640)) },
		"world may read":    func(t *testing.T, _, private string) { must(t, os.Chmod(private, 0o604)) },
		"world may execute": func(t *testing.T, _, private string) { must(t, os.Chmod(private, 0o601)) },
		"symbolic link": func(t *testing.T, dir, private string) {
			must(t, os.Rename(private, filepath.Join(dir, "elsewhere")))
			must(t, os.Symlink("elsewhere", private))
		},
		"directory": func(t *testing.T, _, private string) { must(t, os.Remove(private)); must(t, os.Mkdir(private, 0o700)) },
		"pipe": func(t *testing.T, _, private string) {
			must(t, os.Remove(private))
			must(t, syscall.Mkfifo(private, 0o600))
		},
		"missing": func(t *testing.T, _, private string) { must(t, os.Remove(private)) },
		"empty":   func(t *testing.T, _, private string) { must(t, os.WriteFile(private, nil, 0o600)) },
		"cut":     func(t *testing.T, _, private string) { must(t, os.Truncate(private, 80)) },
		"followed by more": func(t *testing.T, _, private string) {
			edit(t, private, func(s string) string { return s + "x" })
		},
		"another key": func(t *testing.T, dir, private string) {
			others, err := filepath.Glob(filepath.Join(dir, "permit-*.pem"))
			must(t, err)
			data, err := os.ReadFile(others[0])
			must(t, err)
			must(t, os.WriteFile(private, data, 0o600))
		},
		"list is missing":         func(t *testing.T, dir, _ string) { must(t, os.Remove(filepath.Join(dir, "keys.json"))) },
		"list writable by group":  func(t *testing.T, dir, _ string) { must(t, os.Chmod(filepath.Join(dir, "keys.json"), 0o664)) },
		"list is not JSON":        func(t *testing.T, dir, _ string) { editList(t, dir, `{"keys":[`, `{"keys":`) },
		"list without purpose":    func(t *testing.T, dir, _ string) { editList(t, dir, `,"cf_purpose":"receipt"`, ``) },
		"list without status":     func(t *testing.T, dir, _ string) { editList(t, dir, `,"cf_status":"active"`, ``) },
		"list with two actives":   func(t *testing.T, dir, _ string) { editList(t, dir, `"cf_purpose":"permit"`, `"cf_purpose":"receipt"`) },
		"list with unknown names": func(t *testing.T, dir, _ string) { editList(t, dir, `"use":"sig"`, `"use":"sig","note":"x"`) },
		"list is a link": func(t *testing.T, dir, _ string) {
			must(t, os.Rename(filepath.Join(dir, "keys.json"), filepath.Join(dir, "real.json")))
			must(t, os.Symlink("real.json", filepath.Join(dir, "keys.json")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, dir := newKeyring(t)
			kid := active(t, k, jws.PurposeReceipt).KeyID()
			spoil(t, dir, privatePath(dir, jws.PurposeReceipt, kid))
			if _, err := jws.OpenKeyring(dir); err == nil || strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("opened: %v", err)
			}
			if err := k.Reload(); err == nil || active(t, k, jws.PurposeReceipt).KeyID() != kid {
				t.Errorf("a failed Reload must change nothing: %v", err)
			}
			before, _ := filepath.Glob(filepath.Join(dir, "permit-*"))
			if _, made, err := jws.CreateMissing(dir, time.Unix(2000, 0)); err == nil || len(made) != 0 {
				t.Errorf("CreateMissing: made %d, %v", len(made), err)
			}
			list, _ := os.ReadFile(filepath.Join(dir, "keys.json"))
			if _, err := k.Rotate(jws.PurposeReceipt, time.Unix(2000, 0)); err == nil && name != "missing" {
				t.Error("rotated")
			}
			if now, _ := os.ReadFile(filepath.Join(dir, "keys.json")); string(now) != string(list) && name != "missing" {
				t.Error("the key list was changed")
			}
			if name == "missing" { // the way on for who has lost, or destroyed, the active key
				must(t, k.Reload())
				return
			}
			if after, _ := filepath.Glob(filepath.Join(dir, "permit-*")); len(after) != len(before) {
				t.Error("keys were added to a directory that is not in order")
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func edit(t *testing.T, path string, change func(string) string) {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	changed := change(string(data))
	if changed == string(data) {
		t.Fatal("nothing to edit")
	}
	must(t, os.WriteFile(path, []byte(changed), 0o600))
}

func editList(t *testing.T, dir, old, replacement string) {
	t.Helper()
	edit(t, filepath.Join(dir, "keys.json"), func(s string) string { return strings.Replace(s, old, replacement, 1) })
}

func TestRetiredAndRevokedPrivateKeys(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	old := active(t, k, jws.PurposeReceipt).KeyID()
	_, err := k.Rotate(jws.PurposeReceipt, time.Unix(2000, 0))
	must(t, err)
	must(t, os.Remove(privatePath(dir, jws.PurposeReceipt, old)))
	must(t, k.Reload())
	if _, ok := k.Signer(old); ok {
		t.Error("a destroyed key signs")
	}
	if _, ok := k.Public().Find(old, jws.PurposeReceipt); !ok {
		t.Error("a destroyed key must stay published")
	}
	editList(t, dir, `"cf_purpose":"permit","cf_status":"active"`, `"cf_purpose":"permit","cf_status":"revoked"`)
	must(t, k.Reload())
	if _, err := k.Active(jws.PurposePermit); !errors.Is(err, jws.ErrNoKey) {
		t.Errorf("a revoked key signs: %v", err)
	}
	for _, key := range k.Public().Keys() {
		if _, ok := k.Signer(key.ID); ok && key.Status == jws.StatusRevoked {
			t.Error("a revoked key signs by name")
		}
	}
}

// What a crash between two writes leaves: a private key nobody has heard of, a half-written list.
func TestLeftoversOfACrashAreHarmless(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	must(t, os.WriteFile(filepath.Join(dir, "receipt-unheard-of.pem"), []byte("-----BEGIN"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "keys.json.tmp-1"), []byte(`{"keys":[`), 0o600))
	reopened, err := jws.OpenKeyring(dir)
	must(t, err)
	if diff := cmp.Diff(k.Public().Keys(), reopened.Public().Keys()); diff != "" {
		t.Error(diff)
	}
	_, err = reopened.Rotate(jws.PurposeReceipt, time.Unix(2000, 0))
	must(t, err)
}

func TestFailedWriteChangesNothing(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	kid := active(t, k, jws.PurposeReceipt).KeyID()
	must(t, os.Remove(filepath.Join(dir, "keys.json")))
	must(t, os.MkdirAll(filepath.Join(dir, "keys.json", "x"), 0o700)) // so that rename fails
	if _, err := k.Rotate(jws.PurposeReceipt, time.Unix(2000, 0)); err == nil {
		t.Fatal("rotated")
	}
	if active(t, k, jws.PurposeReceipt).KeyID() != kid {
		t.Error("another key signs")
	}
}

// flock is held by the open file, so goroutines with files of their own contend as processes do.
func TestConcurrentCreationMakesOneSetOfKeys(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := 0
	for range 8 {
		wg.Go(func() {
			_, made, err := jws.CreateMissing(dir, time.Unix(1000, 0))
			mu.Lock()
			defer mu.Unlock()
			total += len(made)
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	k, err := jws.OpenKeyring(dir)
	must(t, err)
	if total != 3 || len(k.Public().Keys()) != 3 {
		t.Errorf("made %d keys, %d listed", total, len(k.Public().Keys()))
	}
}

func TestConcurrentRotationLosesNoKey(t *testing.T) {
	t.Parallel()
	k, dir := newKeyring(t)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			if _, err := k.Rotate(jws.PurposeReceipt, time.Unix(2000, 0)); err != nil {
				t.Error(err)
			}
			if _, err := k.Active(jws.PurposeReceipt); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	files, err := filepath.Glob(filepath.Join(dir, "receipt-*.pem"))
	must(t, err)
	if len(files) != 7 || len(k.Public().Keys()) != 9 {
		t.Errorf("%d files, %d keys", len(files), len(k.Public().Keys()))
	}
}
