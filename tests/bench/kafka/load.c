/* Load over librdkafka: as fast as it goes, at a fixed rate with the latency of each record, or reading with the simple consumer.
 *
 *   load produce ADDRESS TOPIC PARTITIONS SIZE RECORDS          as fast as it goes; latency from the call to the ack
 *   load rate    ADDRESS TOPIC PARTITIONS SIZE RECORDS RATE     open loop: latencies are counted from when a record was due, to its ack
 *                                                               and to its arrival at a consumer that waits at the end
 *   load consume ADDRESS TOPIC PARTITIONS SIZE RECORDS          from the earliest offset, all partitions, the simple consumer; time
 *                                                               counts from the first record, what came with it does not
 *
 * Prints one JSON object. Settings after the words, as name=value, go to librdkafka. Built with `cc -O2 load.c -lrdkafka -lpthread`.
 */
#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { AT_ONCE = 1000, POOL = 1 << 20, PATIENCE_S = 120 };

static const char *address, *topic_name;
static int partitions;
static size_t size;
static long records;
static double rate;
static char **settings;
static int settings_count;

/* Microseconds of each record, by its number. */
static uint32_t *acked, *arrived;
static int64_t *due;
static long acked_count, failed_count, arrived_count;
static volatile int consumer_ready;
static int64_t first_ack, last_ack, first_arrival;
static long first_arrived;

static int64_t now_ns(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
    char why[256];
    if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

static rd_kafka_conf_t *configuration(int producer) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", address);
    set(conf, "log_level", "3");
    for (int each = 0; each < settings_count; each++) {
        char name[128];
        const char *equals = strchr(settings[each], '=');
        if (!equals || (size_t)(equals - settings[each]) >= sizeof name) fail(settings[each], "not name=value");
        snprintf(name, sizeof name, "%.*s", (int)(equals - settings[each]), settings[each]);
        int of_consumer = !strncmp(name, "fetch.", 6) || !strncmp(name, "queued.", 7);
        if (of_consumer != producer) set(conf, name, equals + 1);
    }
    return conf;
}

static void on_ack(rd_kafka_t *handle, const rd_kafka_message_t *message, void *opaque) {
    (void)handle, (void)opaque;
    long number = (long)(intptr_t)message->_private;
    int64_t now = now_ns();
    if (message->err) {
        if (!failed_count++) fprintf(stderr, "a record failed: %s\n", rd_kafka_err2str(message->err));
        return;
    }
    if (!acked_count++) first_ack = now;
    last_ack = now;
    int64_t micros = (now - due[number]) / 1000;
    acked[number] = micros < 0 ? 0 : micros > UINT32_MAX ? UINT32_MAX : (uint32_t)micros;
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* Percentiles in ms, after the first `skip` records. */
static void percentiles(const char *name, uint32_t *micros, long count, long skip) {
    if (count <= skip) return;
    qsort(micros + skip, count - skip, sizeof *micros, by_size);
    static const double wanted[] = {0.5, 0.99, 0.999};
    static const char *names[] = {"p50", "p99", "p999"};
    for (int each = 0; each < 3; each++) {
        long at = skip + (long)(wanted[each] * (count - skip - 1));
        printf(", \"%s_%s\": %.3f", name, names[each], micros[at] / 1000.0);
    }
    printf(", \"%s_max\": %.3f", name, micros[count - 1] / 1000.0);
}

static void *consume(void *from) {
    int64_t offset = *(int64_t *)from;
    char why[256];
    rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_CONSUMER, configuration(0), why, sizeof why);
    if (!handle) fail("consumer", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, topic_name, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(handle);
    for (int partition = 0; partition < partitions; partition++)
        if (rd_kafka_consume_start_queue(topic, partition, offset, queue)) fail("consume", rd_kafka_err2str(rd_kafka_last_error()));
    rd_kafka_message_t *messages[AT_ONCE];
    int64_t until = now_ns() + PATIENCE_S * 1000000000LL;
    consumer_ready = 1;
    while (arrived_count < records && now_ns() < until) {
        /* A batch with a time-out waits for a thousand records; one record is waited for, and what is there beside it is taken. */
        messages[0] = rd_kafka_consume_queue(queue, 100);
        if (!messages[0]) continue;
        int64_t now = now_ns();
        ssize_t count = 1 + rd_kafka_consume_batch_queue(queue, 0, messages + 1, AT_ONCE - 1);
        if (!first_arrival) first_arrival = now, first_arrived = count;
        for (ssize_t each = 0; each < count; each++) {
            rd_kafka_message_t *message = messages[each];
            if (!message->err) {
                if (arrived) {
                    int64_t sent;
                    memcpy(&sent, message->payload, sizeof sent);
                    arrived[arrived_count] = (uint32_t)((now - sent) / 1000);
                }
                arrived_count++;
                until = now + PATIENCE_S * 1000000000LL;
            } else if (message->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
                fprintf(stderr, "consumer: %s\n", rd_kafka_message_errstr(message));
            }
            rd_kafka_message_destroy(message);
        }
    }
    return NULL;
}

static void wait_until(rd_kafka_t *handle, int64_t at) {
    for (;;) {
        rd_kafka_poll(handle, 0);
        int64_t left = at - now_ns();
        if (left <= 0) return;
        struct timespec nap = {0, left > 500000 ? 500000 : left};
        nanosleep(&nap, NULL);
    }
}

static double produce(void) {
    char why[256];
    rd_kafka_conf_t *conf = configuration(1);
    set(conf, "acks", "all");
    rd_kafka_conf_set_dr_msg_cb(conf, on_ack);
    rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!handle) fail("producer", why);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(handle, topic_name, NULL);
    const struct rd_kafka_metadata *metadata;
    if (rd_kafka_metadata(handle, 0, topic, &metadata, 10000)) fail("metadata", "no answer");
    rd_kafka_metadata_destroy(metadata);
    char *pool = malloc(POOL + size);
    srandom(1);
    for (size_t at = 0; at < POOL + size; at++) pool[at] = (char)random();
    char *value = malloc(size);
    int64_t began = now_ns() + 200000000LL;
    wait_until(handle, began);
    for (long number = 0; number < records; number++) {
        int64_t at = rate > 0 ? began + (int64_t)(number * 1e9 / rate) : now_ns();
        if (rate > 0) wait_until(handle, at);
        due[number] = at;
        memcpy(value, pool + (number * 97) % POOL, size);
        memcpy(value, &at, sizeof at);
        while (rd_kafka_produce(topic, (int)(number % partitions), RD_KAFKA_MSG_F_COPY, value, size, NULL, 0, (void *)(intptr_t)number)) {
            if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL) fail("produce", rd_kafka_err2str(rd_kafka_last_error()));
            rd_kafka_poll(handle, 5);
        }
        if (number % 100 == 0) rd_kafka_poll(handle, 0);
    }
    if (rd_kafka_flush(handle, PATIENCE_S * 1000)) fail("flush", "records are left");
    return (last_ack - began) / 1e9;
}

int main(int count, char **words) {
    if (count < 7) fail("usage", "load produce|rate|consume ADDRESS TOPIC PARTITIONS SIZE RECORDS [RATE] [name=value..]");
    const char *what = words[1];
    int rated = !strcmp(what, "rate");
    address = words[2], topic_name = words[3], partitions = atoi(words[4]), size = (size_t)atol(words[5]), records = atol(words[6]);
    if (rated && count > 7) rate = atof(words[7]);
    if (partitions < 1 || size < 8 || records < 1 || (rated && rate <= 0)) fail("usage", "numbers above 0, a size of 8 at least");
    settings = words + 7 + rated, settings_count = count - 7 - rated;
    due = calloc(records, sizeof *due), acked = calloc(records, sizeof *acked);
    double seconds;
    if (!strcmp(what, "consume")) {
        int64_t from = RD_KAFKA_OFFSET_BEGINNING;
        consume(&from);
        seconds = (now_ns() - first_arrival) / 1e9;
        acked_count = arrived_count;
    } else if (rated) {
        int64_t from = RD_KAFKA_OFFSET_END;
        arrived = calloc(records, sizeof *arrived);
        pthread_t reader;
        pthread_create(&reader, NULL, consume, &from);
        while (!consumer_ready) nanosleep(&(struct timespec){0, 1000000}, NULL);
        nanosleep(&(struct timespec){1, 0}, NULL); /* The end must be known before the first record. */
        seconds = produce();
        pthread_join(reader, NULL);
    } else {
        seconds = produce();
    }
    printf("{\"seconds\": %.4f, \"records\": %ld, \"failed\": %ld, \"mb_per_s\": %.3f", seconds, acked_count, failed_count,
           (acked_count - (strcmp(what, "consume") ? 0 : first_arrived)) * (double)size / 1e6 / seconds);
    /* The first tenth warms up. */
    if (strcmp(what, "consume")) percentiles("ack", acked, records, records / 10);
    if (rated) {
        printf(", \"arrived\": %ld", arrived_count);
        percentiles("arrival", arrived, arrived_count, records / 10);
    }
    printf("}\n");
    return failed_count || acked_count < records;
}
