// One member of a consumer group over franz-go, in a process of its own. Settings and lines are those of members/member.py.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sort"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

type settings struct {
	Address   string  `json:"address"`
	Group     string  `json:"group"`
	Topic     string  `json:"topic"`
	Protocol  string  `json:"protocol"`
	Instance  *string `json:"instance"`
	SessionMs int     `json:"session_ms"`
	Batch     int     `json:"batch"`
	WorkMs    int     `json:"work_ms"`
	Reset     string  `json:"reset"`
	RefreshMs int     `json:"refresh_ms"`
	Commits   bool    `json:"commits"`
}

// The machine's passing time, the same in all processes.
func now() float64 {
	var at syscall.Timespec
	const monotonic = 1
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&at)), 0)
	return float64(at.Nano()) / 1e9
}

var (
	lock sync.Mutex
	has  = map[int32]bool{}
)

func say(words map[string]any) {
	words["at"] = now()
	line, _ := json.Marshal(words)
	fmt.Println(string(line))
}

// Every change of what it has is told.
func changed(partitions []int32, gets bool) {
	lock.Lock()
	defer lock.Unlock()
	for _, partition := range partitions {
		if gets {
			has[partition] = true
		} else {
			delete(has, partition)
		}
	}
	all := []int32{}
	for partition := range has {
		all = append(all, partition)
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	words := map[string]any{"has": all}
	if gets {
		words["gets"] = true
	}
	say(words)
}

func options(asked settings) []kgo.Opt {
	gives := func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { changed(lost[asked.Topic], false) }
	gets := func(_ context.Context, _ *kgo.Client, got map[string][]int32) { changed(got[asked.Topic], true) }
	start := kgo.NewOffset().AtStart()
	if asked.Reset == "latest" {
		start = kgo.NewOffset().AtEnd()
	}
	all := []kgo.Opt{
		kgo.SeedBrokers(asked.Address), kgo.ConsumerGroup(asked.Group), kgo.ConsumeTopics(asked.Topic), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(start), kgo.BlockRebalanceOnPoll(), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Duration(asked.RefreshMs) * time.Millisecond), kgo.MetadataMinAge(250 * time.Millisecond),
		kgo.OnPartitionsAssigned(gets), kgo.OnPartitionsRevoked(gives), kgo.OnPartitionsLost(gives),
	}
	if asked.Instance != nil {
		all = append(all, kgo.InstanceID(*asked.Instance))
	}
	if asked.Protocol == "consumer" {
		// The library has it behind this word.
		return append(all, kgo.WithContext(context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)))
	}
	balancer := kgo.RangeBalancer()
	if asked.Protocol == "cooperative" {
		balancer = kgo.CooperativeStickyBalancer()
	}
	session := time.Duration(asked.SessionMs) * time.Millisecond
	return append(all, kgo.Balancers(balancer), kgo.SessionTimeout(session), kgo.HeartbeatInterval(500*time.Millisecond))
}

func main() {
	asked := settings{Protocol: "eager", SessionMs: 6000, Batch: 50, Reset: "earliest", RefreshMs: 5000, Commits: true}
	if err := json.Unmarshal([]byte(os.Args[1]), &asked); err != nil {
		panic(err)
	}
	client, err := kgo.NewClient(options(asked)...)
	if err != nil {
		say(map[string]any{"error": "fatal " + err.Error()})
		return
	}
	leaves := make(chan struct{})
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n')
		close(leaves)
	}()
	for {
		select {
		case <-leaves:
			client.Close()
			say(map[string]any{"left": true})
			return
		default:
			step(client, asked)
		}
	}
}

// Reads, works and commits; partitions change hands between steps only.
func step(client *kgo.Client, asked settings) {
	wait, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	found := client.PollRecords(wait, asked.Batch)
	defer client.AllowRebalance()
	for _, wrong := range found.Errors() {
		if errors.Is(wrong.Err, context.DeadlineExceeded) {
			continue
		}
		if errors.Is(wrong.Err, kerr.FencedInstanceID) {
			say(map[string]any{"error": "fatal FENCED_INSTANCE_ID"})
			os.Exit(1)
		}
		say(map[string]any{"error": wrong.Err.Error()})
	}
	records := found.Records()
	if len(records) == 0 {
		return
	}
	rows := [][]any{}
	for _, record := range records {
		rows = append(rows, []any{record.Partition, record.Offset, string(record.Value)})
	}
	time.Sleep(time.Duration(asked.WorkMs*len(rows)) * time.Millisecond)
	say(map[string]any{"read": rows})
	if !asked.Commits {
		return
	}
	limit, done := context.WithTimeout(context.Background(), 20*time.Second)
	defer done()
	if err := client.CommitRecords(limit, records...); err != nil {
		say(map[string]any{"committed": err.Error()})
	} else {
		say(map[string]any{"committed": true})
	}
}
