// The client in Go: net/http, encoding/json and encoding/binary, with tensors in a map, which Go walks in an order of
// its own each time.
//
// A program, for programs.py to run; jobs.py says what its lines mean.
package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
)

const headerLength = "Inference-Header-Content-Length"

type input struct {
	Name     string   `json:"name"`
	Datatype string   `json:"datatype"`
	Shape    []int    `json:"shape"`
	Values   []string `json:"values"`
	Count    int      `json:"count"`
	AsJSON   bool     `json:"json"`
}

type job struct {
	Method     string                     `json:"method"`
	URL        string                     `json:"url"`
	Inputs     []input                    `json:"inputs"`
	Members    map[string]json.RawMessage `json:"members"`
	Framing    string                     `json:"framing"`
	Fields     map[string]string          `json:"fields"`
	Encoding   string                     `json:"encoding"`
	ChunkBytes int                        `json:"chunk_bytes"`
	Surplus    int                        `json:"surplus"`
	Digest     bool                       `json:"digest"`
}

// tensorInput is an entry of the request's JSON.
type tensorInput struct {
	Name       string                 `json:"name"`
	Shape      []int                  `json:"shape"`
	Datatype   string                 `json:"datatype"`
	Parameters map[string]interface{} `json:"parameters"`
	Data       interface{}            `json:"data,omitempty"`
}

// response is what this client wants of the answer's JSON.
type response struct {
	Outputs []struct {
		Name       string          `json:"name"`
		Shape      []int           `json:"shape"`
		Datatype   string          `json:"datatype"`
		Data       json.RawMessage `json:"data"`
		Parameters struct {
			BinaryDataSize int `json:"binary_data_size"`
		} `json:"parameters"`
	} `json:"outputs"`
}

// datatype knows the slices of one datatype; `any` is always such a slice.
type datatype struct {
	parse  func(values []string) any
	read   func(data []byte, count int) any
	decode func(data json.RawMessage) any
	texts  func(tensor any) []string
}

func of[T any](parse func(string) T, text func(T) string) datatype {
	return datatype{
		parse: func(values []string) any {
			tensor := make([]T, len(values))
			for index, value := range values {
				tensor[index] = parse(value)
			}
			return tensor
		},
		read: func(data []byte, count int) any {
			tensor := make([]T, count)
			check(binary.Read(bytes.NewReader(data), binary.LittleEndian, tensor))
			return tensor
		},
		decode: func(data json.RawMessage) any {
			var tensor []T
			check(json.Unmarshal(data, &tensor))
			return tensor
		},
		texts: func(tensor any) []string {
			texts := []string{}
			for _, value := range tensor.([]T) {
				texts = append(texts, text(value))
			}
			return texts
		},
	}
}

func unsigned[T uint8 | uint16 | uint32 | uint64]() datatype {
	return of(
		func(text string) T { return T(must(strconv.ParseUint(text, 10, 64))) },
		func(value T) string { return strconv.FormatUint(uint64(value), 10) },
	)
}

func signed[T int8 | int16 | int32 | int64]() datatype {
	return of(
		func(text string) T { return T(must(strconv.ParseInt(text, 10, 64))) },
		func(value T) string { return strconv.FormatInt(int64(value), 10) },
	)
}

// Go has no type for half floats: their bits are integers.
var datatypes = map[string]datatype{
	"BOOL": of(
		func(text string) bool { return text == "1" },
		func(value bool) string { return map[bool]string{false: "0", true: "1"}[value] },
	),
	"UINT8":  unsigned[uint8](),
	"UINT16": unsigned[uint16](),
	"UINT32": unsigned[uint32](),
	"UINT64": unsigned[uint64](),
	"INT8":   signed[int8](),
	"INT16":  signed[int16](),
	"INT32":  signed[int32](),
	"INT64":  signed[int64](),
	"FP16":   unsigned[uint16](),
	"BF16":   unsigned[uint16](),
	"FP32": of(
		func(text string) float32 { return math.Float32frombits(uint32(must(strconv.ParseUint(text, 10, 32)))) },
		func(value float32) string { return strconv.FormatUint(uint64(math.Float32bits(value)), 10) },
	),
	"FP64": of(
		func(text string) float64 { return math.Float64frombits(must(strconv.ParseUint(text, 10, 64))) },
		func(value float64) string { return strconv.FormatUint(math.Float64bits(value), 10) },
	),
	"BYTES": bytesElements(),
}

// bytesElements makes the datatype BYTES, as strings, which Go fills with any bytes.
func bytesElements() datatype {
	elements := of(
		func(text string) string { return string(must(hex.DecodeString(text))) },
		func(value string) string { return hex.EncodeToString([]byte(value)) },
	)
	elements.read = func(data []byte, count int) any {
		tensor := make([]string, count)
		for index := range tensor {
			end := 4 + binary.LittleEndian.Uint32(data)
			tensor[index] = string(data[4:end])
			data = data[end:]
		}
		return tensor
	}
	return elements
}

func pack(tensor any) []byte {
	var buffer bytes.Buffer
	elements, isBytes := tensor.([]string)
	for _, element := range elements {
		check(binary.Write(&buffer, binary.LittleEndian, uint32(len(element))))
		buffer.WriteString(element)
	}
	if !isBytes {
		check(binary.Write(&buffer, binary.LittleEndian, tensor))
	}
	return buffer.Bytes()
}

func (job *job) message() (jsonData, binaryData []byte) {
	tensors := map[string]input{}
	for _, tensor := range job.Inputs {
		tensors[tensor.Name] = tensor
	}
	inputs := []tensorInput{}
	for name, tensor := range tensors {
		values := tensor.make()
		entry := tensorInput{Name: name, Shape: tensor.Shape, Datatype: tensor.Datatype}
		if tensor.AsJSON {
			entry.Data = values
		} else {
			packed := pack(values)
			entry.Parameters = map[string]interface{}{"binary_data_size": len(packed)}
			binaryData = append(binaryData, packed...)
		}
		inputs = append(inputs, entry)
	}
	if job.Framing == "raw" {
		return nil, binaryData
	}
	document := map[string]interface{}{"inputs": inputs}
	for name, member := range job.Members {
		document[name] = member
	}
	return must(json.Marshal(document)), binaryData
}

func (tensor *input) make() any {
	if tensor.Count == 0 {
		return datatypes[tensor.Datatype].parse(tensor.Values)
	}
	ramp := make([]float32, tensor.Count)
	for index := range ramp {
		ramp[index] = float32(index)
	}
	return ramp
}

func (job *job) send() *http.Response {
	if job.Method == "GET" {
		return must(http.Get(job.URL))
	}
	jsonData, binaryData := job.message()
	payload := append(jsonData, binaryData...)
	payload = append(payload, make([]byte, max(job.Surplus, 0))...)
	payload = compress(payload[:len(payload)+min(job.Surplus, 0)], job.Encoding)
	request := must(http.NewRequest(job.Method, job.URL, job.body(payload)))
	request.Header.Set("Content-Type", "application/json")
	if job.Framing == "raw" {
		request.Header.Set("Content-Type", "application/octet-stream")
	}
	if job.Framing != "headerless" {
		request.Header.Set(headerLength, strconv.Itoa(len(jsonData)))
	}
	if job.Encoding != "" {
		request.Header.Set("Content-Encoding", job.Encoding)
	}
	for name, value := range job.Fields {
		request.Header.Set(name, value)
	}
	return must(http.DefaultClient.Do(request))
}

// body returns the payload as a reader whose length Go knows, or in chunks as one whose length it does not.
func (job *job) body(payload []byte) io.Reader {
	reader := bytes.NewReader(payload)
	if job.ChunkBytes == 0 {
		return reader
	}
	return &chunks{reader, job.ChunkBytes}
}

type chunks struct {
	reader io.Reader
	nbytes int
}

func (chunks *chunks) Read(buffer []byte) (int, error) {
	return chunks.reader.Read(buffer[:min(len(buffer), chunks.nbytes)])
}

func compress(payload []byte, encoding string) []byte {
	var buffer bytes.Buffer
	var writer io.WriteCloser
	switch encoding {
	case "gzip":
		writer = gzip.NewWriter(&buffer)
	case "deflate":
		writer = zlib.NewWriter(&buffer)
	default:
		return payload
	}
	must(writer.Write(payload))
	check(writer.Close())
	return buffer.Bytes()
}

// body reads an answer. Go expands by itself only what it has itself asked to be compressed.
func body(answer *http.Response) []byte {
	defer answer.Body.Close()
	var reader io.Reader = answer.Body
	switch answer.Header.Get("Content-Encoding") {
	case "gzip":
		reader = must(gzip.NewReader(reader))
	case "deflate":
		reader = must(zlib.NewReader(reader))
	}
	return must(io.ReadAll(reader))
}

func (job *job) answer() (said map[string]any) {
	defer func() {
		if failure := recover(); failure != nil {
			said = map[string]any{"failure": fmt.Sprint(failure)}
		}
	}()
	answer := job.send()
	data := body(answer)
	document, tail := data, []byte{}
	if length := answer.Header.Get(headerLength); length != "" {
		document, tail = data[:must(strconv.Atoi(length))], data[must(strconv.Atoi(length)):]
	}
	if len(document) == 0 {
		document = []byte("null")
	}
	outputs := map[string]any{}
	if job.Method == "POST" && answer.StatusCode == http.StatusOK { // metadata has outputs, too
		outputs = job.outputs(document, tail)
	}
	fields := map[string]string{}
	for name := range answer.Header {
		fields[strings.ToLower(name)] = answer.Header.Get(name)
	}
	return map[string]any{
		"status":     answer.StatusCode,
		"fields":     fields,
		"document":   json.RawMessage(document),
		"outputs":    outputs,
		"compressed": answer.Uncompressed || answer.Header.Get("Content-Encoding") != "",
	}
}

func (job *job) outputs(document, tail []byte) map[string]any {
	var read response
	check(json.Unmarshal(document, &read))
	outputs := map[string]any{}
	for _, output := range read.Outputs {
		kind := datatypes[output.Datatype]
		said := map[string]any{"datatype": output.Datatype, "shape": output.Shape}
		outputs[output.Name] = said
		var tensor any
		if output.Data != nil {
			tensor = kind.decode(output.Data)
		} else {
			size := output.Parameters.BinaryDataSize
			tensor = kind.read(tail[:size], count(output.Shape))
			tail = tail[size:]
		}
		if job.Digest {
			said["sha256"] = fmt.Sprintf("%x", sha256.Sum256(pack(tensor)))
		} else {
			said["values"] = kind.texts(tensor)
		}
	}
	return outputs
}

func count(shape []int) int {
	product := 1
	for _, size := range shape {
		product *= size
	}
	return product
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}

func max(a, b int) int {
	return -min(-a, -b)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func must[T any](value T, err error) T {
	check(err)
	return value
}

func say(line map[string]any) {
	fmt.Println(string(must(json.Marshal(line))))
}

func main() {
	say(map[string]any{"versions": "Go " + strings.TrimPrefix(runtime.Version(), "go")})
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return
		}
		check(err)
		var next job
		check(json.Unmarshal(line, &next))
		say(next.answer())
	}
}
