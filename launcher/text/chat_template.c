/* Chat templates of model folders: finds their text, and sets the variables that Hugging Face transformers sets. */
#include <trireme/chat.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/options.h"
#include "base/file.h"
#include "base/json.h"
#include "base/recorder.h"
#include "launcher/text/jinja/eval.h"
#include "launcher/text/strings/utf8.h"

#define FILE_LIMIT   ((size_t)4 << 20)
#define CONFIG_LIMIT ((size_t)64 << 20) /* tokenizer_config.json lists every added token */
#define MAX_NAMES    16

typedef struct named_template {
    const char *name; /* "default" for the only one */
    const char *text;
    trm_jinja_node *statements;
} named_template;

struct trm_chat_template {
    trm_arena arena;
    const char *name; /* for errors */
    named_template templates[MAX_NAMES];
    size_t count;
    bool chosen;            /* by name: templates[0] is the one in use */
    trm_jinja_map *special; /* bos_token and the like */
};

static trm_status add_template(trm_chat_template *chat, const char *name, const char *text, size_t size)
{
    if (chat->count == MAX_NAMES) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s has more than %d chat templates", chat->name, MAX_NAMES);
    }
    if (trm_utf8_valid_prefix(text, size) != size) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s is not UTF-8", chat->name);
    }
    named_template *added = &chat->templates[chat->count];
    added->name = trm_arena_strdup(&chat->arena, name);
    char *copy = trm_arena_alloc(&chat->arena, size + 1);
    if (added->name == NULL || copy == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    memcpy(copy, text, size);
    copy[size] = '\0';
    added->text = copy;
    TRM_TRY(trm_jinja_parse(&chat->arena, chat->name, text, size, &added->statements));
    chat->count++;
    return TRM_OK;
}

static trm_status create(const char *name, trm_chat_template **chat)
{
    trm_chat_template *made = calloc(1, sizeof(*made));
    if (made == NULL) {
        TRM_FAIL(TRM_ERROR_OUT_OF_MEMORY, "cannot allocate a chat template");
    }
    made->name = trm_arena_strdup(&made->arena, name);
    made->special = trm_arena_alloc(&made->arena, sizeof(*made->special));
    if (made->name == NULL || made->special == NULL) {
        trm_chat_template_close(made);
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    *chat = made;
    return TRM_OK;
}

void trm_chat_template_close(trm_chat_template *chat)
{
    if (chat != NULL) {
        trm_arena_fini(&chat->arena);
        free(chat);
    }
}

static trm_status add_file(trm_chat_template *chat, const char *path, bool stream)
{
    char *text;
    size_t size;
    TRM_TRY((stream ? trm_file_read_stream : trm_file_read)(path, FILE_LIMIT, &text, &size));
    trm_status status = add_template(chat, "default", text, size);
    free(text);
    return status;
}

/* Reads "chat_template" of a configuration: a text, or a list of {"name", "template"}. It may be absent. */
static trm_status add_from_config(trm_chat_template *chat, const trm_json *root)
{
    const trm_json *found = trm_json_get(root, "chat_template");
    if (trm_json_is_string(found)) {
        const char *text = trm_json_string(found);
        return add_template(chat, "default", text, strlen(text));
    }
    if (found != NULL && !trm_json_is_array(found)) {
        TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: chat_template is neither a text nor a list of named texts", chat->name);
    }
    for (const trm_json *item = trm_json_first(found); found != NULL && item != NULL; item = trm_json_next(item)) {
        const char *name = trm_json_is_object(item) ? trm_json_string(trm_json_get(item, "name")) : NULL;
        const char *text = trm_json_is_object(item) ? trm_json_string(trm_json_get(item, "template")) : NULL;
        if (name == NULL || text == NULL) {
            TRM_FAIL(TRM_ERROR_INVALID_MODEL, "%s: an entry of chat_template has no name or no template", chat->name);
        }
        TRM_TRY(add_template(chat, name, text, strlen(text)));
    }
    return TRM_OK;
}

static trm_status add_special(trm_chat_template *chat, const char *key, const char *text)
{
    trm_jinja_run run; /* the template owns its memory */
    trm_jinja_run_init(&run, chat->name);
    run.arena = chat->arena;
    const char *key_copy = trm_arena_strdup(&run.arena, key), *text_copy = trm_arena_strdup(&run.arena, text);
    trm_status status = TRM_ERROR_OUT_OF_MEMORY;
    if (key_copy != NULL && text_copy != NULL) {
        const trm_jinja_value name = trm_jinja_literal(key_copy), value = trm_jinja_literal(text_copy);
        status = trm_jinja_map_set(&run, chat->special, &name, &value);
    }
    chat->arena = run.arena;
    return status;
}

/* Reads the special tokens of a configuration that are not known yet: texts, or objects with "content". */
static trm_status add_specials(trm_chat_template *chat, const trm_json *root)
{
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const trm_json *found = trm_json_get(root, keys[i]);
        const char *text =
            trm_json_is_object(found) ? trm_json_string(trm_json_get(found, "content")) : trm_json_string(found);
        if (text != NULL && trm_jinja_map_get(chat->special, keys[i]) == NULL) {
            TRM_TRY(add_special(chat, keys[i], text));
        }
    }
    return TRM_OK;
}

/* Reads a configuration of the folder, if it exists: special tokens and, unless known, the chat template. */
static trm_status add_config(trm_chat_template *chat, const char *folder, const char *file, bool template_too)
{
    const char *path = trm_arena_printf(&chat->arena, "%s/%s", folder, file);
    if (path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (!trm_file_exists(path)) {
        return TRM_OK;
    }
    trm_json_document *document;
    TRM_TRY(trm_json_read(path, CONFIG_LIMIT, &document));
    const trm_json *root = trm_json_root(document);
    trm_status status = TRM_OK;
    if (!trm_json_is_object(root)) {
        status = trm_fail(TRM_ERROR_INVALID_MODEL, "%s is not a JSON object", path);
    }
    if (status == TRM_OK && template_too && chat->count == 0) {
        chat->name = path;
        status = add_from_config(chat, root);
    }
    if (status == TRM_OK) {
        status = add_specials(chat, root);
    }
    trm_json_close(document);
    return status;
}

static trm_status open_folder(trm_chat_template *chat, const char *folder)
{
    const char *path = trm_arena_printf(&chat->arena, "%s/chat_template.jinja", folder);
    if (path == NULL) {
        return TRM_ERROR_OUT_OF_MEMORY;
    }
    if (trm_file_exists(path)) {
        chat->name = path;
        TRM_TRY(add_file(chat, path, false));
    }
    TRM_TRY(add_config(chat, folder, "tokenizer_config.json", true));
    TRM_TRY(add_config(chat, folder, "special_tokens_map.json", false));
    TRM_TRY(chat->count == 0 ? add_config(chat, folder, "chat_template.json", true) : TRM_OK);
    if (chat->count == 0) {
        TRM_FAIL(
            TRM_ERROR_INVALID_MODEL,
            "%s has no chat template, neither chat_template.jinja nor in tokenizer_config.json; give a template file",
            folder);
    }
    return TRM_OK;
}

static trm_status choose(trm_chat_template *chat, const char *name)
{
    for (size_t i = 0; i < chat->count; i++) {
        if (strcmp(chat->templates[i].name, name) == 0) {
            chat->templates[0] = chat->templates[i];
            chat->chosen = true;
            return TRM_OK;
        }
    }
    TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s has no chat template named %s; the first one is %s", chat->name, name,
             chat->templates[0].name);
}

TRM_CALL(NULL, trm_chat_template_open, (const char *path, const char *name, trm_chat_template **chat),
         (path, name, chat))
{
    if (path == NULL || chat == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_chat_template_open needs a path and an output argument");
    }
    trm_chat_template *made = NULL;
    struct stat info;
    TRM_TRY(create(path, &made));
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    trm_status status = folder ? open_folder(made, path) : add_file(made, path, true);
    if (status == TRM_OK && name != NULL) {
        status = choose(made, name);
    }
    if (status != TRM_OK) {
        trm_chat_template_close(made);
        return status;
    }
    *chat = made;
    return TRM_OK;
}

TRM_CALL(NULL, trm_chat_template_parse, (const char *name, const char *text, size_t size, trm_chat_template **chat),
         (name, text, size, chat))
{
    if (name == NULL || (text == NULL && size > 0) || chat == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "trm_chat_template_parse needs a name, a text and an output argument");
    }
    trm_chat_template *made = NULL;
    TRM_TRY(create(name, &made));
    trm_status status = add_template(made, "default", text, size);
    if (status != TRM_OK) {
        trm_chat_template_close(made);
        return status;
    }
    *chat = made;
    return TRM_OK;
}

bool trm_chat_template_mentions(const trm_chat_template *chat, const char *text)
{
    bool found = false;
    for (size_t i = 0; chat != NULL && text != NULL && i < chat->count; i++) {
        found = found || strstr(chat->templates[i].text, text) != NULL;
    }
    return found;
}

static trm_status set_json(trm_jinja_run *run, trm_jinja_map *map, const char *name, const char *text,
                           trm_jinja_kind kind)
{
    const trm_jinja_value key = trm_jinja_literal(name);
    trm_jinja_value value = trm_jinja_none();
    if (text != NULL) {
        TRM_TRY(trm_jinja_read_json(run, name, text, strlen(text), &value));
        if (value.kind != kind && value.kind != TRM_JINJA_NONE) {
            TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "%s is not a JSON %s", name,
                     kind == TRM_JINJA_MAP ? "object" : "array");
        }
    }
    return trm_jinja_map_set(run, map, &key, &value);
}

/* Sets the variables that transformers passes to a template: messages, tools, documents, add_generation_prompt and the
 * special tokens. */
static trm_status set_variables(trm_jinja_run *run, const trm_chat_template *chat, const trm_chat_input *input,
                                trm_jinja_map *map, bool *tools)
{
    const trm_jinja_value prompt_key = trm_jinja_literal("add_generation_prompt");
    const trm_jinja_value prompt = trm_jinja_bool(!input->no_generation_prompt);
    for (size_t i = 0; i < chat->special->count; i++) {
        TRM_TRY(trm_jinja_map_set(run, map, &chat->special->entries[i].key, &chat->special->entries[i].value));
    }
    TRM_TRY(set_json(run, map, "messages", input->messages, TRM_JINJA_LIST));
    TRM_TRY(set_json(run, map, "tools", input->tools, TRM_JINJA_LIST));
    TRM_TRY(set_json(run, map, "documents", NULL, TRM_JINJA_LIST));
    TRM_TRY(trm_jinja_map_set(run, map, &prompt_key, &prompt));
    *tools = trm_jinja_truth(trm_jinja_map_get(map, "tools"));
    if (input->extra != NULL) {
        trm_jinja_value extra;
        TRM_TRY(trm_jinja_new_map(run, TRM_JINJA_MAP, &extra));
        TRM_TRY(set_json(run, extra.map, "extra variables", input->extra, TRM_JINJA_MAP));
        const trm_jinja_value *more = &extra.map->entries[0].value;
        for (size_t i = 0; more->kind == TRM_JINJA_MAP && i < more->map->count; i++) {
            TRM_TRY(trm_jinja_map_set(run, map, &more->map->entries[i].key, &more->map->entries[i].value));
        }
    }
    return TRM_OK;
}

static trm_status select_template(const trm_chat_template *chat, bool tools, const trm_jinja_node **statements)
{
    const named_template *found = chat->chosen || chat->count == 1 ? &chat->templates[0] : NULL;
    for (size_t i = 0; i < chat->count && found == NULL && tools; i++) {
        found = strcmp(chat->templates[i].name, "tool_use") == 0 ? &chat->templates[i] : NULL;
    }
    for (size_t i = 0; i < chat->count && found == NULL; i++) {
        found = strcmp(chat->templates[i].name, "default") == 0 ? &chat->templates[i] : NULL;
    }
    if (found == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT,
                 "%s has several chat templates and none is named default; choose one by name", chat->name);
    }
    *statements = found->statements;
    return TRM_OK;
}

static trm_status render(trm_jinja_run *run, const trm_chat_template *chat, const trm_chat_input *input, trm_bytes *out)
{
    trm_jinja_value variables;
    const trm_jinja_node *statements = NULL;
    bool tools = false;
    TRM_TRY(trm_jinja_new_map(run, TRM_JINJA_MAP, &variables));
    TRM_TRY(set_variables(run, chat, input, variables.map, &tools));
    TRM_TRY(select_template(chat, tools, &statements));
    TRM_TRY(trm_bytes_reserve(out, 1024));
    TRM_TRY(trm_jinja_render(run, statements, variables.map, out));
    return trm_bytes_append(out, "", 1);
}

TRM_CALL(NULL, trm_chat_template_render,
         (const trm_chat_template *chat, const trm_chat_input *input, char **text, size_t *text_size),
         (chat, input, text, text_size))
{
    if (chat == NULL || input == NULL || text == NULL || text_size == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot render a chat: template, input, text or text_size is NULL");
    }
    trm_chat_input own = TRM_CHAT_INPUT_INIT;
    TRM_TRY(trm_options_read("chat inputs", input, &own));
    input = &own;
    if (input->messages == NULL) {
        TRM_FAIL(TRM_ERROR_INVALID_ARGUMENT, "cannot render a chat: messages is NULL");
    }
    trm_jinja_run run;
    trm_bytes out = {0};
    trm_jinja_run_init(&run, chat->name);
    run.now = input->now;
    trm_status status = render(&run, chat, input, &out);
    trm_jinja_run_fini(&run);
    if (status != TRM_OK) {
        trm_bytes_fini(&out);
        return status;
    }
    *text = out.data;
    *text_size = out.size - 1;
    return TRM_OK;
}
