package jws

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// ErrNoKey is wrapped when a keyring holds no key for what is asked.
var ErrNoKey = errors.New("no such key")

// stateFile lists all keys, past ones too, as a JWKS: a copy of it is a trust file.
const stateFile = "keys.json"

// Keyring is a directory of private keys, one PKCS#8 PEM file each, and keys.json, which says what each
// is for. A private key is on disk before keys.json names it and is never overwritten, so a crash
// loses no key that has been published. Changes by several processes are serialised by a file lock;
// a process sees another's after Reload. Methods may be called from several goroutines.
type Keyring struct {
	dir string

	mu      sync.RWMutex
	public  KeySet            // guarded by mu
	private map[string]Signer // by key id; guarded by mu
}

// OpenKeyring reads an existing directory. A key that should sign but cannot be read is an error.
func OpenKeyring(dir string) (*Keyring, error) {
	k := &Keyring{dir: dir}
	if err := k.Reload(); err != nil {
		return nil, err
	}
	return k, nil
}

// CreateMissing makes the directory (mode 0700) and an active key for each purpose that has none, and
// returns the keyring and the keys it made. It replaces nothing.
func CreateMissing(dir string, now time.Time) (*Keyring, []Key, error) {
	k := &Keyring{dir: dir}
	if err := k.begin(); err != nil {
		return nil, nil, err
	}
	var made []Key
	err := k.change(func(keys []Key) ([]Key, error) {
		for _, p := range []Purpose{PurposeReceipt, PurposePermit, PurposeCheckpoint} {
			if indexOf(keys, p, StatusActive) >= 0 {
				continue
			}
			fresh, err := k.generate(p, StatusActive, now)
			if err != nil {
				return nil, err
			}
			made, keys = append(made, fresh), append(keys, fresh)
		}
		return keys, nil
	})
	if err != nil {
		return nil, nil, err
	}
	return k, made, nil
}

// Rotate retires the active key of a purpose and puts the next one, or a new one, in its place. The
// old private key stays, for what is committed under it and not yet signed.
func (k *Keyring) Rotate(p Purpose, now time.Time) (Key, error) {
	var active Key
	err := k.change(func(keys []Key) ([]Key, error) {
		if i := indexOf(keys, p, StatusActive); i >= 0 {
			keys[i].Status, keys[i].Expires = StatusRetired, now.Unix()
		}
		if i := indexOf(keys, p, StatusNext); i >= 0 {
			keys[i].Status, keys[i].NotBefore = StatusActive, now.Unix()
			active = keys[i]
			return keys, nil
		}
		var err error
		active, err = k.generate(p, StatusActive, now)
		return append(keys, active), err
	})
	return active, err
}

// AddNext publishes the key that the next Rotate will take into use, and returns the one there is if
// it has been published already.
func (k *Keyring) AddNext(p Purpose, now time.Time) (Key, error) {
	var next Key
	err := k.change(func(keys []Key) ([]Key, error) {
		if i := indexOf(keys, p, StatusNext); i >= 0 {
			next = keys[i]
			return keys, nil
		}
		var err error
		next, err = k.generate(p, StatusNext, now)
		return append(keys, next), err
	})
	return next, err
}

// Active returns the signer for a purpose.
func (k *Keyring) Active(p Purpose) (Signer, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	keys := k.public.Keys()
	if i := indexOf(keys, p, StatusActive); i >= 0 {
		return k.private[keys[i].ID], nil
	}
	return Signer{}, fmt.Errorf("%w: an active %s key in %s", ErrNoKey, p, k.dir)
}

// Signer returns the signer of one key, if its private key is here and it is not revoked.
func (k *Keyring) Signer(kid string) (Signer, bool) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	s, ok := k.private[kid]
	return s, ok
}

// Public returns all public keys, past ones too.
func (k *Keyring) Public() KeySet {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.public
}

// Reload reads the directory again. After an error the keyring is as it was.
func (k *Keyring) Reload() error {
	public, err := k.readState()
	if err != nil {
		return err
	}
	private, err := k.readPrivates(public)
	if err != nil {
		return err
	}
	k.set(public, private)
	return nil
}

func (k *Keyring) set(public KeySet, private map[string]Signer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.public, k.private = public, private
}

// change applies edit to the keys on disk under the lock of the directory. Nothing is written if the
// directory would not load afterwards.
func (k *Keyring) change(edit func([]Key) ([]Key, error)) error {
	unlock, err := lockDir(k.dir)
	if err != nil {
		return fmt.Errorf("lock key directory: %w", err)
	}
	defer unlock()
	public, err := k.readState()
	if err != nil {
		return err
	}
	keys, err := edit(public.Keys())
	if err != nil {
		return err
	}
	if public, err = NewKeySet(keys...); err != nil {
		return err
	}
	private, err := k.readPrivates(public)
	if err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(k.dir, stateFile), public.JWKS()); err != nil {
		return fmt.Errorf("write key list: %w", err)
	}
	k.set(public, private)
	return nil
}

// begin makes the directory and an empty key list. The list comes before the first key, so private
// keys without a list mean that the list was lost, and with it what has been published.
func (k *Keyring) begin() error {
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return fmt.Errorf("make key directory: %w", err)
	}
	unlock, err := lockDir(k.dir)
	if err != nil {
		return fmt.Errorf("lock key directory: %w", err)
	}
	defer unlock()
	list := filepath.Join(k.dir, stateFile)
	if _, err := os.Lstat(list); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(k.dir)
	if err != nil {
		return fmt.Errorf("read key directory: %w", err)
	}
	if slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return filepath.Ext(e.Name()) == ".pem" }) {
		return fmt.Errorf("%w: %s is gone, but private keys are there: restore it, or move them away", ErrKey, list)
	}
	if err := replaceFile(list, KeySet{}.JWKS()); err != nil {
		return fmt.Errorf("write key list: %w", err)
	}
	return nil
}

func (k *Keyring) readState() (KeySet, error) {
	data, err := readOwnFile(filepath.Join(k.dir, stateFile), 0o022)
	if err != nil {
		return KeySet{}, fmt.Errorf("read key list: %w", err)
	}
	public, err := ParseJWKS(data)
	if err != nil {
		return KeySet{}, fmt.Errorf("read key list %s: %w", filepath.Join(k.dir, stateFile), err)
	}
	single := map[string]bool{} // a purpose has at most one active and one next key
	for _, key := range public.Keys() {
		if key.Purpose == "" || key.Status == "" {
			return KeySet{}, fmt.Errorf("%w: %s has no purpose or status in the key list", ErrKey, key.ID)
		}
		slot := string(key.Purpose) + " " + string(key.Status)
		if single[slot] && (key.Status == StatusActive || key.Status == StatusNext) {
			return KeySet{}, fmt.Errorf("%w: the key list has two keys that are %s", ErrKey, slot)
		}
		single[slot] = true
	}
	return public, nil
}

// readPrivates reads the private keys of all that may sign.
func (k *Keyring) readPrivates(public KeySet) (map[string]Signer, error) {
	private := map[string]Signer{}
	for _, key := range public.Keys() {
		if key.Status == StatusRevoked {
			continue
		}
		signer, err := k.readPrivate(key)
		if errors.Is(err, fs.ErrNotExist) && key.Status == StatusRetired {
			continue // may be destroyed once nothing waits for it
		}
		if err != nil {
			return nil, err
		}
		private[key.ID] = signer
	}
	return private, nil
}

func (k *Keyring) readPrivate(key Key) (Signer, error) {
	path := k.path(key)
	data, err := readOwnFile(path, 0o077)
	if err != nil {
		return Signer{}, fmt.Errorf("read private key: %w", err)
	}
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		return Signer{}, fmt.Errorf("%w: %s is not one PKCS#8 PEM block", ErrKey, path)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return Signer{}, fmt.Errorf("%w: %s is not a PKCS#8 key", ErrKey, path)
	}
	priv, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return Signer{}, fmt.Errorf("%w: %s is not an Ed25519 key", ErrKey, path)
	}
	signer, err := SignerFromKey(priv)
	if err != nil {
		return Signer{}, err
	}
	if signer.KeyID() != key.ID {
		return Signer{}, fmt.Errorf("%w: %s is another key than the key list says", ErrKey, path)
	}
	return signer, nil
}

func (k *Keyring) generate(p Purpose, s Status, now time.Time) (Key, error) {
	if p == "" || !slices.Contains(purposes, p) {
		return Key{}, fmt.Errorf("%w: unknown purpose", ErrKey)
	}
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		return Key{}, fmt.Errorf("generate key: %w", err)
	}
	key := Key{ID: Thumbprint(pub), Public: pub, Purpose: p, Status: s}
	if s == StatusActive {
		key.NotBefore = now.Unix()
	}
	if err := createFile(k.path(key), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})); err != nil {
		return Key{}, fmt.Errorf("write private key: %w", err)
	}
	return key, nil
}

func (k *Keyring) path(key Key) string {
	return filepath.Join(k.dir, cmp.Or(string(key.Purpose), "key")+"-"+key.ID+".pem")
}

func indexOf(keys []Key, p Purpose, s Status) int {
	return slices.IndexFunc(keys, func(k Key) bool { return k.Purpose == p && k.Status == s })
}
