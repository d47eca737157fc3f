/* JSON schemas: instances accepted and refused, errors. Quotes are written ' here. */
#include "support/support.h"

#include <trireme/grammar.h>

#include "support/byte_grammar.h"

#define MOST_TEXTS 24

static trm_tokenizer *tokenizer;
static trm_grammar_vocab *vocab;

static int set_up(void **state)
{
    (void)state;
    test_byte_vocab(&tokenizer, &vocab);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    trm_grammar_vocab_destroy(vocab);
    trm_tokenizer_close(tokenizer);
    return 0;
}

static char *with_quotes(const char *text)
{
    char *copy = strdup(text);
    assert_non_null(copy);
    for (char *at = copy; *at != '\0'; at++) {
        *at = *at == '\'' ? '"' : *at;
    }
    return copy;
}

/* Texts that follow a schema, then after NULL those that do not, then NULL. */
static void check(const char *schema, const char *const *texts)
{
    char *copies[MOST_TEXTS] = {NULL};
    const char *const *text = texts;
    size_t n = 0;
    for (int ends = 0; ends < 2; n++, text++) {
        assert_true(n < MOST_TEXTS);
        copies[n] = *text == NULL ? NULL : with_quotes(*text);
        ends += *text == NULL;
    }
    char *quoted = with_quotes(schema);
    test_grammar_texts(vocab, TRM_GRAMMAR_JSON_SCHEMA, quoted, (const char *const *)copies);
    free(quoted);
    for (size_t i = 0; i < n; i++) {
        free(copies[i]);
    }
}

#define CHECK(schema, ...) check(schema, (const char *const[]){__VA_ARGS__, NULL})

static void fails(const char *schema, trm_status status, const char *message)
{
    trm_grammar *grammar = NULL;
    char *quoted = with_quotes(schema);
    assert_fails(trm_grammar_compile(vocab, TRM_GRAMMAR_JSON_SCHEMA, quoted, strlen(quoted), &grammar), status,
                 message);
    free(quoted);
}

static void test_annotations(void **state)
{
    (void)state;
    CHECK("{'type':'integer','markdownDescription':'d','readonly':true,'links':[],'propertyOrder':3}", "1", NULL,
          "'a'");
    CHECK("{'properties':{'a':{'type':'null'}}}", "1", "[]", "{}", "{'a':null}", "{'a':null,'b':[1]}", NULL, "{'a':1}",
          "{'b':1,'a':null}");
    CHECK("{'maxLength':1}", "'a'", "7", "{'a':'bcd'}", NULL, "'ab'");
    CHECK("{'type':'string','nullable':true}", "null", "'a'", NULL, "1");
    CHECK("true", "1", "{}", NULL, "");
}

static void test_strings(void **state)
{
    (void)state;
    CHECK("{'type':'string','pattern':'^https?://'}", "'https://x.y'", "'http://'", NULL, "'ftp://'", "'x https://'");
    CHECK("{'type':'string','pattern':'b'}", "'abc'", "'b'", NULL, "'a'", "''");
    CHECK("{'type':'string','pattern':'^[a-z]+$','maxLength':5}", "'abcde'", "'a'", NULL, "''", "'abcdef'", "'A'");
    CHECK("{'type':'string','pattern':'a.*b|c$','minLength':4,'maxLength':6}", "'xaxxb'", "'xxxxxc'", NULL, "'acb'",
          "'abcdefg'", "'aaaa'");
    CHECK("{'type':'string','format':'date','maxLength':10}", "'2024-02-29'", "'1999-12-31'", NULL, "'2023-02-29'",
          "'2024-13-01'");
    CHECK("{'type':'string','maxLength':100000}", "''", "'abc'", NULL, "1");
    CHECK("{'type':'string','pattern':'^(?=.*[0-9])(?=.*[a-z])[a-z0-9]{3,}$'}", "'ab1'", "'1xxx'", NULL, "'abc'",
          "'123'", "'a1'");
    CHECK("{'type':'string','pattern':'^(?!ab)a?b*$'}", "'a'", "'bb'", "''", NULL, "'ab'", "'abb'");
    CHECK("{'type':'string','pattern':'^(?:(?!c)[a-e])+$'}", "'abde'", NULL, "'abc'", "''");
    CHECK("{'type':'string','pattern':'^a|b$'}", "'axx'", "'xxb'", NULL, "'xbx'");
    CHECK("{'type':'string','pattern':'^\\\\p{Lu}+$'}", "'AÄ'", NULL, "'a'");
    CHECK("{'type':'string','format':'ipv6'}", "'::1'", "'2001:db8::ff00:42:8329'", NULL, "'1::2::3'", "'12345::'");
    CHECK("{'type':'string','format':'uri'}", "'https://a.b/c?d=e#f'", "'urn:x:y'", NULL, "'a b'", "'/a'");
    CHECK("{'type':'string','not':{'pattern':'^a'}}", "'b'", "''", NULL, "'ab'");
    CHECK("{'type':'string','not':{'enum':['x','y']}}", "'xy'", "'z'", NULL, "'x'", "'y'");
    CHECK("{'type':'string','not':{'maxLength':2}}", "'abc'", NULL, "'ab'", "''");
}

static void test_numbers(void **state)
{
    (void)state;
    CHECK("{'type':'integer','multipleOf':7}", "0", "7", "-14", "343", NULL, "6", "-15", "7.0");
    CHECK("{'type':'number','multipleOf':0.25}", "0.25", "1.5", "-3", "0", NULL, "0.3", "0.125");
    CHECK("{'type':'integer','multipleOf':6,'minimum':10,'exclusiveMaximum':24}", "12", "18", NULL, "6", "24", "15");
    CHECK("{'allOf':[{'multipleOf':4},{'multipleOf':6}],'type':'integer'}", "12", "-24", NULL, "6", "4");
    CHECK("{'type':'number','not':{'type':'integer'}}", "1.5", "-0.25", NULL, "1", "1.0", "10");
    CHECK("{'type':'integer','not':{'const':5}}", "4", "55", "-5", NULL, "5");
    CHECK("{'minimum':2,'exclusiveMinimum':true,'type':'number'}", "2.5", "3", NULL, "2", "1");
    CHECK("{'type':'integer','not':{'minimum':3}}", "2", "-7", NULL, "3", "10");
}

static void test_objects(void **state)
{
    (void)state;
    CHECK("{'type':'object','properties':{'a':{},'b':{}},'anyOf':[{'required':['a']},{'required':['b']}],"
          "'additionalProperties':false}",
          "{'a':1}", "{'b':1}", "{'a':1,'b':2}", NULL, "{}", "{'c':1}");
    CHECK("{'type':'object','patternProperties':{'^[a-z]+$':{'type':'integer'},'^x':{'minimum':5}},"
          "'additionalProperties':false}",
          "{}", "{'ab':1}", "{'xy':5,'b':2}", NULL, "{'A':1}", "{'xy':4}", "{'ab':'c'}");
    CHECK("{'type':'object','propertyNames':{'maxLength':2,'pattern':'^a'}}", "{'a':1,'ab':2}", NULL, "{'b':1}",
          "{'abc':1}");
    CHECK("{'type':'object','propertyNames':{'enum':['a','b']}}", "{'b':1}", NULL, "{'c':1}");
    CHECK("{'type':'object','properties':{'a':{}},'required':['b'],'additionalProperties':{'type':'null'}}",
          "{'b':null}", "{'a':1,'b':null,'c':null}", NULL, "{}", "{'a':1}", "{'b':1}");
    CHECK("{'type':'object','properties':{'a':{},'b':{},'c':{}},'additionalProperties':false,'minProperties':2,"
          "'maxProperties':2}",
          "{'a':1,'b':1}", "{'b':1,'c':1}", NULL, "{'a':1}", "{'a':1,'b':1,'c':1}", "{}");
    CHECK("{'type':'object','maxProperties':1,'minProperties':1}", "{'a':1}", NULL, "{}", "{'a':1,'b':2}");
    CHECK("{'type':'object','minProperties':2,'additionalProperties':{'type':'integer'}}", "{'a':1,'b':2}",
          "{'a':1, 'ab':2,'b':3}", NULL, "{}", "{'a':1}", "{'a':1,'a':2}", "{'ab':1,'b':2,'ab':3}", "{'a':1,'b':[]}");
    CHECK("{'type':'object','properties':{'x':{}},'minProperties':3}", "{'x':1,'a':{'b':1},'b':2}",
          "{'a':1,'b':2,'c':3}", NULL, "{'x':1,'a':1}", "{'x':1,'a':1,'a':2}");
    CHECK("{'type':'object','dependentRequired':{'a':['b']},'properties':{'a':{},'b':{}},'additionalProperties':false}",
          "{}", "{'b':1}", "{'a':1,'b':1}", NULL, "{'a':1}");
    CHECK("{'type':'object','dependencies':{'a':{'properties':{'b':{'type':'null'}}}},'properties':{'a':{},'b':{}}}",
          "{'b':1}", "{'a':1}", "{'a':1,'b':null}", NULL, "{'a':1,'b':1}");
    CHECK("{'type':'object','properties':{'a':{}},'not':{'required':['a']}}", "{}", "{'b':1}", NULL, "{'a':1}");
    CHECK("{'type':'object','allOf':[{'properties':{'a':{'type':'null'}}}],'unevaluatedProperties':false}", "{}",
          "{'a':null}", NULL, "{'b':1}", "{'a':1}");
}

static void test_arrays(void **state)
{
    (void)state;
    CHECK("{'type':'array','contains':{'const':1},'items':{'enum':[1,2]}}", "[1]", "[2,1,2]", NULL, "[]", "[2]");
    CHECK("{'type':'array','contains':{'const':1},'minContains':2,'maxContains':3,'items':{'enum':[1,2]}}", "[1,1]",
          "[1,2,1,1]", NULL, "[1]", "[1,1,1,1]");
    CHECK("{'type':'array','uniqueItems':true,'items':{'enum':['a','b','c']},'minItems':2}", "['a','b']",
          "['c','a','b']", NULL, "['a']", "['a','a']", "['a','b','c','a']");
    CHECK("{'type':'array','uniqueItems':true,'items':{'type':'string'}}", "[]", "['a']", "['a','b','ab']", "['', 'a']",
          NULL, "['a','a']", "['ab','b','ab']", "['','']");
    CHECK("{'type':'array','uniqueItems':true,'items':{'type':'integer'},'maxItems':3}", "[1,11,-1]", NULL, "[1,1]",
          "[1,2,3,4]", "[0,-0]");
    CHECK("{'type':'array','prefixItems':[{'type':'null'}],'items':{'type':'integer'},'maxItems':3}", "[]", "[null]",
          "[null,1,2]", NULL, "[1]", "[null,1,2,3]");
    CHECK("{'type':'array','items':{'$ref':'#/$defs/x'},'maxItems':2,'$defs':{'x':{'type':'integer'}}}", "[1,2]", NULL,
          "[1,2,3]", "['a']");
    CHECK("{'type':'array','not':{'items':{'type':'integer'}}}", "['a']", "[1,'a']", NULL, "[]", "[1]");
    CHECK("{'type':'array','prefixItems':[{}],'unevaluatedItems':false}", "[]", "[1]", NULL, "[1,2]");
}

static void test_combinations(void **state)
{
    (void)state;
    CHECK("{'allOf':[{'$ref':'#/$defs/base'},{'properties':{'b':{'type':'integer'}},'required':['b']}],"
          "'$defs':{'base':{'type':'object','properties':{'a':{'type':'string'}},'required':['a']}}}",
          "{'a':'x','b':1}", NULL, "{'a':'x'}", "{'b':1}", "{'a':1,'b':1}");
    CHECK("{'oneOf':[{'type':'integer','multipleOf':2},{'type':'integer','multipleOf':3}]}", "2", "3", "9", NULL, "6",
          "5", "12");
    CHECK("{'oneOf':[{'properties':{'k':{'const':'a'},'x':{'type':'integer'}},'required':['k','x']},"
          "{'properties':{'k':{'const':'b'},'y':{'type':'null'}},'required':['k','y']}],'type':'object'}",
          "{'k':'a','x':1}", "{'k':'b','y':null}", NULL, "{'k':'a','y':null}", "{'k':'b','x':1}");
    CHECK("{'type':'object','properties':{'k':{'enum':['a','b']},'v':{'type':'integer'}},'required':['k'],"
          "'if':{'properties':{'k':{'const':'a'}}},'then':{'required':['v']},'additionalProperties':false}",
          "{'k':'b'}", "{'k':'a','v':1}", "{'k':'b','v':1}", NULL, "{'k':'a'}");
    CHECK("{'if':{'exclusiveMaximum':0},'then':{'minimum':-10},'else':{'multipleOf':2}}", "-1", "4", "'a'", NULL,
          "-100", "3");
    CHECK("{'not':{'type':['integer','boolean']}}", "'a'", "1.5", "null", NULL, "1", "true");
    CHECK("{'not':{'anyOf':[{'type':'object'},{'type':'array'}]},'enum':[1,{},[],'a']}", "1", "'a'", NULL, "{}", "[]");
    CHECK("{'enum':['a','bb',3,{'k':1}],'type':['string','object'],'maxLength':1}", "'a'", "{'k':1}", NULL, "'bb'",
          "3");
    CHECK("{'properties':{'a b/c%':{'type':'null'}},'additionalProperties':{'$ref':'#/properties/a%20b~1c%25'},"
          "'type':'object'}",
          "{'x':null}", NULL, "{'x':1}");
    CHECK(
        "{'properties':{'a':{'$id':'tool','$defs':{'x':{'type':'null'}},'items':{'$ref':'#/$defs/x'},'type':'array'}},"
        "'$defs':{'x':{'type':'integer'}},'type':'object','additionalProperties':{'$ref':'#/$defs/x'}}",
        "{'a':[null],'b':1}", NULL, "{'a':[1]}", "{'b':null}");
    CHECK("{'$ref':'#here','$defs':{'x':{'$anchor':'here','type':'null'}}}", "null", NULL, "1");
    CHECK("{'type':'object','properties':{'next':{'$ref':'#'},'v':{'type':'integer'}},'required':['v'],"
          "'additionalProperties':false}",
          "{'v':1}", "{'next':{'next':{'v':1},'v':2},'v':3}", NULL, "{'next':{},'v':1}");
    CHECK("{'$schema':'http://json-schema.org/draft-07/schema#','properties':{'a':{'$ref':'#/definitions/"
          "s','maxLength':1}},"
          "'definitions':{'s':{'type':'string'}}}",
          "{'a':'xyz'}", NULL, "{'a':1}");
}

static void test_errors(void **state)
{
    (void)state;
    const trm_status wrong = TRM_ERROR_INVALID_ARGUMENT, unknown = TRM_ERROR_UNSUPPORTED;
    fails("{'properties':{'d':{'type':'string','pattern':'(a)\\\\1'}}}", unknown,
          "JSON schema at /properties/d/pattern: ");
    fails("{'properties':{'d':{'$ref':'other.json#/x'}}}", unknown,
          "at /properties/d/$ref: $ref other.json#/x is another");
    fails("{'properties':{'d':{'minLength':-1}}}", wrong, "at /properties/d/minLength: not a count");
    fails("{'items':{'type':'array','uniqueItems':true,'items':{'type':'object'}}}", unknown, "at /items: uniqueItems");
    fails("{'type':'string','minLength':3,'maxLength':2}", wrong, "no text at all");
    fails("{'allOf':[{'type':'string'},{'type':'null'}]}", wrong, "no text at all");
    fails("{'type':'array','uniqueItems':true,'minItems':3,'items':{'pattern':'^[ab]$','type':'string'}}", wrong,
          "cannot differ");
    fails("{'$dynamicRef':'#x'}", unknown, "dynamic references");
    fails("{'type':'number','multipleOf':0}", wrong, "above 0");
    fails("{'anyOf':[]}", wrong, "at least one schema");
    fails("{'anyOf':[{'$ref':'#'}]}", wrong, "no text at all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_annotations), cmocka_unit_test(test_strings), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_objects),     cmocka_unit_test(test_arrays),  cmocka_unit_test(test_combinations),
        cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
