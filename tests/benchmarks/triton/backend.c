/* Two Triton backends from one source: `identity` copies, for each output that is asked for, the input of the same name;
 * with -DSINK, `sink` leaves its one input alone and answers its size as COUNT, an INT64 of shape [1].
 *
 * Triton hands a backend its whole input in memory, in one or more buffers, and wants the output in memory that it
 * gives. So one memcpy is the least that an identity can do. The types are Triton's and stay opaque here; the
 * prototypes are those of its backend interface, as far as it is used.
 */
#include <stdint.h>
#include <string.h>

typedef struct TRITONSERVER_Error Error;
typedef struct TRITONBACKEND_ModelInstance Instance;
typedef struct TRITONBACKEND_Request Request;
typedef struct TRITONBACKEND_Input Input;
typedef struct TRITONBACKEND_Response Response;
typedef struct TRITONBACKEND_Output Output;

void TRITONSERVER_ErrorDelete(Error *);
Error *TRITONBACKEND_RequestInput(Request *, const char *name, Input **);
Error *TRITONBACKEND_RequestOutputCount(Request *, uint32_t *count);
Error *TRITONBACKEND_RequestOutputName(Request *, const uint32_t index, const char **name);
Error *TRITONBACKEND_RequestRelease(Request *, uint32_t flags);
Error *TRITONBACKEND_InputProperties(Input *, const char **name, int *datatype, const int64_t **shape, uint32_t *rank,
                                     uint64_t *nbytes, uint32_t *buffer_count);
Error *TRITONBACKEND_InputBuffer(Input *, const uint32_t index, const void **buffer, uint64_t *nbytes, int *memory_type,
                                 int64_t *memory_id);
Error *TRITONBACKEND_ResponseNew(Response **, Request *);
Error *TRITONBACKEND_ResponseOutput(Response *, Output **, const char *name, const int datatype, const int64_t *shape,
                                    const uint32_t rank);
Error *TRITONBACKEND_OutputBuffer(Output *, void **buffer, const uint64_t nbytes, int *memory_type, int64_t *memory_id);
Error *TRITONBACKEND_ResponseSend(Response *, const uint32_t flags, Error *);

enum { INT64 = 9, FINAL = 1, RELEASE_ALL = 1 };

typedef struct {
    Input *input;
    const char *name;
    int datatype;
    const int64_t *shape;
    uint32_t rank;
    uint64_t nbytes;
    uint32_t buffer_count;
} Tensor;

static Error *read_input(Request *request, const char *name, Tensor *tensor) {
    Error *error = TRITONBACKEND_RequestInput(request, name, &tensor->input);
    if (error)
        return error;
    return TRITONBACKEND_InputProperties(tensor->input, &tensor->name, &tensor->datatype, &tensor->shape, &tensor->rank,
                                         &tensor->nbytes, &tensor->buffer_count);
}

static Error *new_output(Response *response, const char *name, int datatype, const int64_t *shape, uint32_t rank,
                         uint64_t nbytes, void **memory) {
    Output *output;
    int memory_type = 0;
    int64_t memory_id = 0;
    Error *error = TRITONBACKEND_ResponseOutput(response, &output, name, datatype, shape, rank);
    return error ? error : TRITONBACKEND_OutputBuffer(output, memory, nbytes, &memory_type, &memory_id);
}

#ifdef SINK
static Error *answer(Response *response, Request *request) {
    Tensor tensor;
    Error *error = read_input(request, "x", &tensor);
    if (error)
        return error;
    const int64_t count = (int64_t)tensor.nbytes, shape = 1;
    void *memory;
    error = new_output(response, "COUNT", INT64, &shape, 1, sizeof count, &memory);
    if (!error)
        memcpy(memory, &count, sizeof count);
    return error;
}
#else
static Error *copy(Response *response, const Tensor *tensor) {
    void *memory;
    Error *error = new_output(response, tensor->name, tensor->datatype, tensor->shape, tensor->rank, tensor->nbytes, &memory);
    char *target = memory;
    for (uint32_t index = 0; !error && index < tensor->buffer_count; index++) {
        const void *part;
        uint64_t nbytes;
        int memory_type = 0;
        int64_t memory_id = 0;
        error = TRITONBACKEND_InputBuffer(tensor->input, index, &part, &nbytes, &memory_type, &memory_id);
        if (!error) {
            memcpy(target, part, nbytes);
            target += nbytes;
        }
    }
    return error;
}

static Error *answer(Response *response, Request *request) {
    uint32_t count;
    Error *error = TRITONBACKEND_RequestOutputCount(request, &count);
    for (uint32_t index = 0; !error && index < count; index++) {
        const char *name;
        Tensor tensor;
        error = TRITONBACKEND_RequestOutputName(request, index, &name);
        if (!error)
            error = read_input(request, name, &tensor);
        if (!error)
            error = copy(response, &tensor);
    }
    return error;
}
#endif

static void discard(Error *error) {
    if (error)
        TRITONSERVER_ErrorDelete(error);
}

static void serve(Request *request) {
    Response *response;
    Error *error = TRITONBACKEND_ResponseNew(&response, request);
    if (!error) {
        error = answer(response, request);
        discard(TRITONBACKEND_ResponseSend(response, FINAL, error));
    }
    discard(error);
    discard(TRITONBACKEND_RequestRelease(request, RELEASE_ALL));
}

/* What Triton calls for each batch of requests. */
Error *TRITONBACKEND_ModelInstanceExecute(Instance *instance, Request **requests, const uint32_t count) {
    (void)instance;
    for (uint32_t index = 0; index < count; index++)
        serve(requests[index]);
    return 0;
}
