// Package sql holds every statement the program runs, the schema and the roles; nothing else in the
// program contains SQL.
//
// A statement is a file in queries/, called by its name. Its first comment says which locks it takes
// and which index serves it. Migrations go forward only and are serialised by a lock row.
package sql

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"sort"
	"strings"
)

//go:embed migrations/*.sql queries/*.sql roles.sql
var files embed.FS

// Role is the role every session of the gateway runs under; see roles.sql.
const Role = "counterfoil_gateway"

// Query returns the text of queries/<name>.sql. It panics for a name that does not exist: names are
// constants of the program, and a test prepares every file.
func Query(name string) string {
	text, ok := statements[name]
	if !ok {
		panic(fmt.Sprintf("sql: no query named %q", name))
	}
	return text
}

// statements is read once: the hot path asks for a dozen of them a batch.
var statements = readStatements()

func readStatements() map[string]string {
	texts := make(map[string]string)
	for _, name := range Names() {
		text, err := files.ReadFile("queries/" + name + ".sql")
		if err != nil {
			panic(fmt.Sprintf("sql: %v", err))
		}
		texts[name] = string(text)
	}
	return texts
}

// Names lists the queries in order.
func Names() []string {
	entries, err := fs.ReadDir(files, "queries")
	if err != nil {
		panic(fmt.Sprintf("sql: %v", err))
	}
	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), ".sql"))
	}
	sort.Strings(names)
	return names
}

type migration struct {
	version int
	name    string
	text    string
}

func migrations() []migration {
	paths, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		panic(fmt.Sprintf("sql: %v", err))
	}
	sort.Strings(paths)
	list := make([]migration, 0, len(paths))
	for i, p := range paths {
		text, err := files.ReadFile(p)
		if err != nil {
			panic(fmt.Sprintf("sql: %v", err))
		}
		list = append(list, migration{version: i + 1, name: path.Base(p), text: string(text)})
	}
	return list
}

func roles() string {
	text, err := files.ReadFile("roles.sql")
	if err != nil {
		panic(fmt.Sprintf("sql: %v", err))
	}
	return string(text)
}
